import json
import math

import pytest

from t2t_keras.config import DataConfig
from t2t_keras.data.prepare import prepare
from t2t_keras.data.sources import corpora
from tests.inference import tiny
from tests.programs import assert_error, run_cases

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluate")
    tiny.make_run(folder / "run", source_language="en", target_language="de")
    tiny.make_run(folder / "lowercase_run", lowercase="both")
    for name, count in [("a.en", 3), ("a.de", 3), ("short.de", 2), ("none", 0)]:
        (folder / name).write_text("\n".join(tiny.SENTENCES[:count]), encoding="utf-8")
    (folder / "a.zh").write_text("他在图书馆里看书。\n今天天气很好！\n我不知道。\n", encoding="utf-8")
    pairs = [(f"A man {word}", f"Ein Mann {word}") for word in ("runs", "barks", "plays", "jumps", "stands")]
    (folder / "zh.de").write_bytes((folder / "a.zh").read_bytes())
    splits = {"train": pairs[2:], "valid": pairs[1:2], "test": pairs[:1]}
    corpus = corpora.Corpus({name: lambda rows=rows: rows for name, rows in splits.items()})
    prepare(corpus, DataConfig(vocab_size=290), folder / "data", report=lambda line: None)
    return folder


@pytest.fixture(scope="module")
def results(folder):
    run = [f"--model_dir={folder / 'run'}", "--max_length_offset=3"]
    texts = [f"--source={folder / 'a.en'}", f"--reference={folder / 'a.de'}"]
    (folder / "labels").write_text("O O\n")
    labels = [f"--{side}={folder / 'labels'}" for side in ("hypotheses", "references")]
    cases = {
        "files": [*run, *texts, "--lowercase", "--paper_bleu", "--beam_size=1", f"--output_dir={folder / 'out'}"],
        "chinese": [*run, texts[0], f"--reference={folder / 'a.zh'}", f"--output_dir={folder / 'zh'}"],
        "chinese_files": [
            *("--task=translation", f"--hypotheses={folder / 'a.zh'}", f"--references={folder / 'zh.de'}"),
        ],
        "said_to_be_german": [*run, texts[0], f"--reference={folder / 'a.zh'}", "--target_language=de"],
        "again": [*run, texts[0], f"--reference={folder / 'a.zh'}", "--target_language=de", "--beam_size=1"],
        "no_folder": [*run, "--split=test", f"--output_dir={folder / 'a.en'}"],
        "chinese_paper": [*run, texts[0], f"--reference={folder / 'a.zh'}", "--paper_bleu"],
        "split": [*run, "--split=test"],
        "lowercase_run": [f"--model_dir={folder / 'lowercase_run'}", "--max_length_offset=3", *texts],
        "no_text": run,
        "both": [*run, *texts, "--split=test"],
        "half": [*run, texts[0]],
        "unequal": [*run, texts[0], f"--reference={folder / 'short.de'}"],
        "missing": [*run, texts[0], "--reference=/nowhere/a.de"],
        "empty": [*run, f"--source={folder / 'none'}", f"--reference={folder / 'none'}"],
        "files_and_folder": [
            *("--task=translation", f"--output_dir={folder / 'out'}"),
            *(f"--{side}={folder / 'a.de'}" for side in ("hypotheses", "references")),
        ],
        "files_and_beam": ["--task=tagging", *labels, "--beam_size=5"],
        "labels_by_bleu": ["--task=tagging", *labels, "--paper_bleu"],
        "unequal_files": [
            *("--task=translation", f"--hypotheses={folder / 'short.de'}", f"--references={folder / 'a.de'}"),
        ],
        "labels_of_a_language": ["--task=tagging", *labels, "--target_language=de"],
        "text_and_data": [*run, *texts, f"--data_dir={folder / 'data'}"],
        "no_data": [*run, "--split=test", f"--data_dir={folder / 'out'}"],
    }
    outcomes = run_cases("launch.evaluate", [(arguments, b"") for arguments in cases.values()])
    return dict(zip(cases, outcomes, strict=True))


def test_files(results, folder):
    status, out, err = results["files"]
    assert status == 0
    names = ["BLEU", "chrF", "TER", "BLEU lowercased", "BLEU tokenised lowercased", "BLEU tokenised, compounds split"]
    scores = json.loads((folder / "out" / "scores.json").read_text(encoding="utf-8"))
    assert [score["name"] for score in scores["scores"]] == names
    for score in scores["scores"]:
        assert f"{score['value']:.2f}" in out and score["signature"] in out
    assert scores["num_cut"] > 0  # the model is untrained
    assert f"warning: {scores['num_cut']} outputs were cut at the limit of 1 x source + 3 tokens; " in err
    assert scores["settings"]["beam_size"] == 1 and scores["settings"]["length_penalty"] == 0.6
    assert 1 < scores["perplexity"] < math.inf
    assert f"nats {scores['nats_per_line']:.3f}" in " ".join(out.split())
    tokens = 3 * scores["nats_per_line"] / math.log(scores["perplexity"])  # for three references
    assert tokens == pytest.approx(round(tokens), rel=1e-6)
    assert f"{scores['perplexity']:.3f}" in out and "tokens/s" in out
    hypotheses = (folder / "out" / "hypotheses.txt").read_text(encoding="utf-8")
    assert hypotheses.count("\n") == scores["num_lines"] == 3
    assert "compare with multi-bleu.perl" in out and "not sacreBLEU" in out


def test_scores_use_the_language_of_the_references(results, folder):
    status, out, _ = results["chinese"]
    assert status == 0
    assert "scored as 'zh', the language of the references; the model was trained for 'de'\n" in out
    for output in (out, results["chinese_files"][1]):
        assert "tok:zh" in output and "tok:13a" not in output
    scores = json.loads((folder / "zh" / "scores.json").read_text(encoding="utf-8"))
    assert scores["settings"]["target_language"] == "zh"
    status, out, _ = results["said_to_be_german"]
    assert status == 0 and "tok:13a" in out and "scored as" not in out
    written = " ".join(str(folder / "run" / "evaluation" / "a.en" / name) for name in ("hypotheses.txt", "scores.json"))
    assert f"written: {written}\n" in out
    assert f"replaced: {written}\n" in results["again"][1]


def test_splits_of_the_data(results, folder):
    assert results["split"][0] == 0
    written = folder / "run" / "evaluation" / "test"
    assert sorted(path.name for path in written.iterdir()) == ["hypotheses.txt", "scores.json"]
    settings = json.loads((written / "scores.json").read_text(encoding="utf-8"))["settings"]
    assert (settings["data_split"], settings["split"], settings["beam_size"]) == ("test", "sentences", 2)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_text", ["--split", "--source"]),
        ("both", ["--split", "--source"]),
        ("half", ["--source", "--reference"]),
        ("unequal", ["a.en has 3", "short.de has 2"]),
        ("missing", ["--reference=/nowhere/a.de: no such file"]),
        ("empty", ["no lines"]),
        ("no_data", ["out"]),
        ("no_folder", ["--output_dir=", "a.en is a file; give a folder"]),
        ("chinese_paper", ["no rules for 'zh'"]),
        ("files_and_folder", ["--output_dir cannot be combined with --hypotheses", "scores are printed"]),
        ("files_and_beam", ["--beam_size cannot be combined with --hypotheses"]),
        ("labels_of_a_language", ["--target_language: scores of tagging do not depend on the language; omit the flag"]),
        ("text_and_data", ["requires --split"]),
        ("labels_by_bleu", ["--paper_bleu applies to translations; tagging is scored by f1"]),
        ("unequal_files", ["short.de, ", "a.de: unequal numbers of lines: 2 to evaluate, 3 references"]),
    ],
)
def test_errors(results, name, words):
    assert_error(results[name], *words)
