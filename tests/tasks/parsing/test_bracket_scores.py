"""Bracket scores against EVALB.

EVALB's results for changed trees are stored. If the environment variable EVALB_DIR names its source, the test runs it.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from t2t_keras.tasks.parsing.bracket_scores import BracketCounts, Parameters, bracket_counts, compared, with_tags
from t2t_keras.tasks.parsing.trees import Tree, leaf, tree_of_line
from tests.tasks.parsing.disturbed_trees import pairs

COUNT = 2500
STORED = pathlib.Path(__file__).with_name("evalb_figures.json")
EVALB_DIR = os.environ.get("EVALB_DIR", "")
needs_evalb = pytest.mark.skipif(
    not (EVALB_DIR and shutil.which("cc")), reason="EVALB_DIR must name the source of EVALB, and cc must be there"
)


@pytest.fixture(scope="module")
def evalb(tmp_path_factory):
    """Runs EVALB on two lists of lines; returns its summary by name, and a row of numbers per sentence."""
    folder = tmp_path_factory.mktemp("evalb")
    command = ["cc", "-w", "-O2", "-o", folder / "evalb", pathlib.Path(EVALB_DIR, "evalb.c")]
    subprocess.run(command, check=True)

    def run(references: list[str], trees: list[str], parameters: str = "COLLINS.prm") -> tuple[dict, list[list[float]]]:
        for name, lines in (("gold", references), ("test", trees)):
            (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        command = [folder / "evalb", "-p", pathlib.Path(EVALB_DIR, parameters), "-e", "1000000"]
        done = subprocess.run([*command, folder / "gold", folder / "test"], capture_output=True, text=True, check=True)
        summary = done.stdout.split("-- All --")[1].split("-- len<=")[0]
        figures = {name.strip(): float(value) for name, value in re.findall(r"(.+?)=\s*([\d.]+)", summary)}
        rows = [line.split() for line in done.stdout.splitlines() if re.match(r"\s*\d+\s+\d+\s+[012]\s", line)]
        return figures, [[float(value) for value in row] for row in rows]

    return run


def figures(counts: BracketCounts) -> dict[str, float]:
    """Returns the scores with the names of EVALB's summary."""
    precision, recall, f1, exact = counts.scores(strict=False)
    return {
        "Number of sentence": counts.sentences,
        "Number of Error sentence": counts.errors,
        "Number of Skip  sentence": counts.skipped,
        "Number of Valid sentence": counts.valid,
        "Bracketing Recall": recall,
        "Bracketing Precision": precision,
        "Bracketing FMeasure": f1,
        "Complete match": exact,
    }


def assert_as_evalb(counts: BracketCounts, expected: dict[str, float]) -> None:
    for name, value in figures(counts).items():
        assert value == pytest.approx(expected[name], abs=0.00501), name


@pytest.fixture(scope="module")
def disturbed():
    return pairs(COUNT)


def test_scores_equal_those_of_evalb(disturbed):
    counts = bracket_counts([tree for _, tree in disturbed], [reference for reference, _ in disturbed])
    assert min(counts.errors, counts.skipped, counts.exact) > 20
    assert_as_evalb(counts, json.loads(STORED.read_text(encoding="utf-8")))


@needs_evalb
def test_counts_of_each_sentence_equal_those_of_evalb(disturbed, evalb):
    actual, rows = evalb([str(reference) for reference, _ in disturbed], [str(tree) for _, tree in disturbed])
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    assert {name: actual[name] for name in stored} == stored
    assert len(rows) == COUNT
    for (reference, tree), (_, _, status, _, _, matched, gold, test, *_) in zip(disturbed, rows, strict=True):
        counts = compared(tree, reference)
        assert (counts.errors, counts.skipped) == (status == 1, status == 2)
        if not status:
            expected = BracketCounts(1, 0, 0, matched, gold, test, counts.exact)
            assert counts == expected, (str(reference), str(tree))


@needs_evalb
def test_evalbs_own_sample(evalb):
    """Uses EVALB's own parameters; a blank line becomes a tree without words."""
    references, trees = (
        pathlib.Path(EVALB_DIR, "sample", f"sample.{kind}").read_text().splitlines() for kind in ("gld", "tst")
    )
    expected, _ = evalb(references, trees, "sample/sample.prm")
    parameters = Parameters(Parameters().deleted - {"."}, {"TT": "T"}, {"This": "this"})
    parsed = ([tree_of_line(line) for line in lines] for lines in (trees, references))
    assert_as_evalb(bracket_counts(*parsed, parameters), expected)
    assert len(trees) == 24


def test_sentences_in_error_count_as_wrong():
    """EVALB skips these sentences."""
    right = Tree("S", (Tree("NP", (leaf("NN", "a"),)), leaf("VB", "b")))
    other = Tree("S", (Tree("NP", (leaf("NN", "a"),)), leaf("VB", "c")))
    counts = bracket_counts([right, other, Tree("TOP")], [right, right, right])
    assert (counts.errors, counts.skipped) == (1, 1)
    assert counts.scores(strict=False) == (100, 100, 100, 100)
    precision, recall, f1, exact = counts.scores()
    assert (precision, recall, exact) == pytest.approx((50, 100 / 3, 100 / 3))
    assert f1 == pytest.approx(40)


def test_trees_without_scored_words_are_skipped():
    """EVALB skips them if the reference has no scored word either."""
    right, dots = Tree("S", (Tree("NP", (leaf("NN", "a"),)), leaf("VB", "b"))), Tree("S", (leaf(".", "."),))
    assert bracket_counts([right, dots], [right, dots]).scores() == (100, 100, 100, 100)
    assert bracket_counts([right, Tree("TOP")], [right, dots]).scores()[3] == 100
    assert bracket_counts([right, dots], [right, right]).scores()[3] == 50


def test_tags_come_from_the_reference_if_the_words_are_as_many():
    reference = Tree("S", (leaf("NN", "a"), Tree("NP", (leaf("VB", "b"),))))
    tree = Tree("S", (Tree("X", (leaf("XX", "a"), leaf("XX", "b"))),))
    assert str(with_tags(tree, reference)) == "(S (X (NN a) (VB b)))"
    assert with_tags(reference.children[1], reference) == reference.children[1]
