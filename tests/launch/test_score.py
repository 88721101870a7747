"""The program that scores translations."""

import json

import pytest

from tests.inference import tiny
from tests.programs import assert_refused, run_cases

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("score")
    tiny.make_run(folder / "run")
    tiny.make_run(folder / "classifier", task="classification")
    (folder / "a.labels").write_text("good\n" * 3, encoding="utf-8")
    for name, count in [("a.en", 3), ("a.de", 3), ("short.de", 2)]:
        (folder / name).write_text("\n".join(tiny.SENTENCES[:count]), encoding="utf-8")
    lines = [f"{sentence}\t{sentence}\n" for sentence in tiny.SENTENCES[:3]]
    (folder / "both.tsv").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def results(folder):
    run = [f"--model_dir={folder / 'run'}", f"--source={folder / 'a.en'}"]
    good = [*run, f"--translation={folder / 'a.de'}"]
    cases = {
        "plain": good,
        "json": [*good, "--json", f"--output={folder / 'scores.jsonl'}"],
        "both_sides": [run[0], f"--source={folder / 'both.tsv'}"],
        "one_side": run,
        "reference": [*run, f"--reference={folder / 'a.de'}"],
        "without_penalty": [*good, "--length_penalty=0"],
        "help": ["--help"],
        "search": [*good, "--beam_size=3"],
        "unequal": [*run, f"--translation={folder / 'short.de'}"],
        "missing": [*run, "--translation=/nowhere/a.de"],
        "label": [f"--model_dir={folder / 'classifier'}", run[1], f"--translation={folder / 'a.labels'}"],
        "over_itself": [*good, f"--output={folder / 'a.de'}"],
        "into_a_folder": [*good, f"--output={folder / 'run'}"],
        "no_run": [f"--model_dir={folder / 'other'}", *good[1:]],
    }
    done = run_cases("launch.score", [(arguments, b"") for arguments in cases.values()])
    return dict(zip(cases, done, strict=True))


def test_a_line_of_numbers_a_pair(results):
    status, out, _ = results["plain"]
    assert status == 0
    rows = [line.split("\t") for line in out.splitlines()]
    assert len(rows) == 3
    for (score, log_prob, count), sentence in zip(rows, tiny.SENTENCES, strict=False):
        assert int(count) == len(tiny.tokenizer().encode(sentence)) + 1
        assert float(log_prob) < float(score) < 0


def test_json_has_every_token(results, folder):
    assert results["json"][:2] == (0, "")
    lines = (folder / "scores.jsonl").read_text(encoding="utf-8").splitlines()
    for line, plain in zip(map(json.loads, lines), results["plain"][1].splitlines(), strict=True):
        assert plain.split("\t")[0] == f"{line['score']:.6f}"
        assert len(line["pieces"]) == len(line["token_log_probs"])
        assert line["pieces"][-1] == "</s>"


def test_it_lists_the_flags_that_have_an_effect_and_takes_no_others(results):
    status, text, _ = results["help"]
    assert status == 0
    forms = [line.split()[0] for line in text.splitlines() if line.startswith("  --")]
    listed = {form.partition("=")[0].removeprefix("--").removeprefix("[no]") for form in forms}
    model = {"model_dir", "checkpoint", "ensemble", "ensemble_mean", "extension"}
    numbers = {"length_penalty", "length_normalization", "tokens_per_batch"}
    own = {"source", "translation", "reference", "output", "json"}
    assert listed - {"helpfull", "version", "flagfile"} == model | numbers | own
    status, _, error = results["search"]
    assert status != 0
    assert "beam_size" in error


def test_settings_of_scores_and_the_other_name_of_the_translation(results):
    assert results["reference"] == results["both_sides"] == results["plain"]
    for line in results["without_penalty"][1].splitlines():
        score, log_prob, _ = line.split("\t")
        assert float(score) == pytest.approx(float(log_prob), abs=1e-4)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("unequal", ["a.en", "short.de", "3", "2"]),
        ("missing", ["--translation=/nowhere/a.de: no such file"]),
        ("one_side", ["a.en: plain text has one side; give its translation too"]),
        ("no_run", ["other"]),
        ("over_itself", ["--output=", "a.de is also the input"]),
        ("into_a_folder", ["--output=", "run is a folder; give a file"]),
        ("label", ["line 1: 'good' is not a label"]),
    ],
)
def test_bad_input_is_one_line(results, name, words):
    assert_refused(results[name], *words)
