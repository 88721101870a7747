"""The examples in docs/cookbook.md run and learn, with smaller training."""

import itertools
import pathlib
import re

import pytest

from tests.test_from_python import python_blocks, run_code

pytestmark = pytest.mark.integration

CLASSIFIER, LANGUAGE_MODEL, CAPTIONER = python_blocks("docs/cookbook.md")
PRAISE = {"positive": ("great", "lovely", "warm"), "negative": ("dull", "cold", "poor")}
FILMS = ("film", "plot", "cast", "scene", "ending")


def number_after(text: str, output: str) -> float:
    (number,) = re.findall(rf"^{text} ([\d.]+)", output, re.MULTILINE)
    return float(number)


def test_classifier_learns(tmp_path: pathlib.Path) -> None:
    pairs = itertools.product(PRAISE, range(3), FILMS, ("the", "this", "its"))
    lines = [f"{start} {film} is {PRAISE[label][word]}\t{label}\n" for label, word, film, start in pairs]
    for name in ("train.tsv", "valid.tsv", "test.tsv"):
        (tmp_path / name).write_text("".join(lines), encoding="utf-8")
    assert (
        number_after(
            "accuracy",
            run_code(CLASSIFIER, tmp_path, {"Adam(5e-4)": "Adam(5e-3)", "VOCAB, LENGTH = 10000": "VOCAB, LENGTH = 50"}),
        )
        > 0.9
    )


def test_language_model_learns(tmp_path: pathlib.Path) -> None:
    lines = [f"a {film} of {word} words\n" for film in FILMS for words in PRAISE.values() for word in words] * 40
    for name in ("train.en", "valid.en"):
        (tmp_path / name).write_text("".join(lines), encoding="utf-8")
    output = run_code(
        LANGUAGE_MODEL, tmp_path, {"VOCAB, LENGTH = 3000, 16": "VOCAB, LENGTH = 40, 8", "Adam(2e-3)": "Adam(5e-3)"}
    )
    assert 1 < number_after("perplexity", output) < 4
    assert re.match(rf"a ({'|'.join(FILMS)}) of \w+ words", output.splitlines()[-1])


@pytest.mark.slow
def test_captioner_learns(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("sklearn", reason="needs the pictures of scikit-learn")
    smaller = {
        "scenes(8000, 0, 1400)": "scenes(1500, 0, 20)",
        "scenes(1000, 1400, 1797)": "scenes(40, 0, 20)",
        "epochs=8": "epochs=12",
        "Adam(1e-3)": "Adam(3e-3)",
    }
    output = run_code(CAPTIONER, tmp_path, smaller)
    assert number_after("correct captions", output) > 0.5
    assert re.search(r"such as: \w+ (above|left of) \w+$", output.splitlines()[-1])
