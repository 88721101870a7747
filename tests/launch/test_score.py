import json

import pytest

from tests.inference import tiny
from tests.programs import assert_error, run_cases

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
        "unequal": [*run, f"--translation={folder / 'short.de'}"],
        "missing": [*run, "--translation=/nowhere/a.de"],
        "label": [f"--model_dir={folder / 'classifier'}", run[1], f"--translation={folder / 'a.labels'}"],
        "over_itself": [*good, f"--output={folder / 'a.de'}"],
        "into_a_folder": [*good, f"--output={folder / 'run'}"],
        "no_run": [f"--model_dir={folder / 'other'}", *good[1:]],
    }
    outcomes = run_cases("launch.score", [(arguments, b"") for arguments in cases.values()])
    return dict(zip(cases, outcomes, strict=True))


def test_one_line_of_numbers_per_pair(results):
    status, out, _ = results["plain"]
    assert status == 0
    rows = [line.split("\t") for line in out.splitlines()]
    assert len(rows) == 3
    for (score, log_prob, count), sentence in zip(rows, tiny.SENTENCES, strict=False):
        assert int(count) == len(tiny.tokenizer().encode(sentence)) + 1
        assert float(log_prob) < float(score) < 0


def test_json_contains_token_scores(results, folder):
    assert results["json"][:2] == (0, "")
    lines = (folder / "scores.jsonl").read_text(encoding="utf-8").splitlines()
    for line, plain in zip(map(json.loads, lines), results["plain"][1].splitlines(), strict=True):
        assert plain.split("\t")[0] == f"{line['score']:.6f}"
        assert len(line["pieces"]) == len(line["token_log_probs"])
        assert line["pieces"][-1] == "</s>"


def test_score_settings_and_equivalent_inputs(results):
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
def test_errors(results, name, words):
    assert_error(results[name], *words)
