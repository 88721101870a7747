"""The Python blocks in the documents run with smaller training."""

import importlib.util
import itertools
import os
import pathlib
import re

import pytest

from tests import programs

ROOT = pathlib.Path(__file__).parents[1]
# The first block trains the run that the others use. Pages of other chapters and of changed models have separate tests.
PAGES = ("docs/python.md", "docs/translator.md", "docs/attention.md", "README.md")
MISSING = [name for name in ("tokenizers", "tiktoken") if importlib.util.find_spec(name) is None]
# An encoding that needs no download, in which each byte is a token.
BYTES = 'tiktoken.Encoding("b", pat_str=".", mergeable_ranks={bytes([i]): i for i in range(256)}, special_tokens={})'
SMALLER_SIZES = {
    "vocab_size=8000": "vocab_size=320",
    "train.max_minutes=30": 'train.max_steps=4", "model.num_encoder_layers=1", "model.num_decoder_layers=1',
    "DecodeConfig(beam_size=5)": "DecodeConfig(beam_size=5, max_length_offset=20)",
    '"data/from_python"': '"data/mine"',
    '"runs/from_python"': '"runs/mine"',
    '"mine/run"': '"runs/mine"',
    **({} if "tiktoken" in MISSING else {'tiktoken.get_encoding("r50k_base")': BYTES}),
}
WORDS = {
    "A dog": "Ein Hund",
    "The little girl": "Das kleine Mädchen",
    "Two men": "Zwei Köter",
    "runs": "läuft",
    "talk": "reden schnell",
    "climbs into a wooden playhouse": "klettert in ein hölzernes Spielhaus",
}


RESULT_CHANGES = {
    **{"data/multi30k": "data/mine", "runs/multi30k": "runs/mine", '"test"': '"valid"'},
    **{"DecodeConfig(beam_size=5)": SMALLER_SIZES["DecodeConfig(beam_size=5)"]},
}


def python_blocks(*pages: str) -> list[str]:
    texts = [(ROOT / page).read_text("utf-8") for page in pages]
    return [block for text in texts for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]


def run_code(code: str, folder: pathlib.Path, changes: dict[str, str]) -> str:
    for documented, here in changes.items():
        assert code.count(documented) == 1
        code = code.replace(documented, here)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    command = ["-c", code]
    result = programs.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """The folder in which the blocks run one after the other, starting with the one that trains."""
    folder = tmp_path_factory.mktemp("reader")
    english, german = ([*words] for words in (WORDS, WORDS.values()))
    lines = list(itertools.product(range(3), range(3, 6))) * 10
    for name, words in (("a.en", english), ("a.de", german)):
        (folder / name).write_text("".join(f"{words[who]} {words[does]}.\n" for who, does in lines), "utf-8")
    runnable = [block for block in python_blocks(*PAGES) if not any(f"import {name}" in block for name in MISSING)]
    run_code(
        "\n".join(sorted(runnable, key=lambda block: "data, strategy).train()" not in block)), folder, SMALLER_SIZES
    )
    return folder


@pytest.mark.integration
def test_blocks_write_the_documented_files(folder):
    for path in ("saved_models/logits/saved_model.pb", "runs/tuned/config.json", "cross.png", "second_word.svg"):
        assert (folder / path).is_file()


@pytest.mark.integration
def test_code_for_measuring_results(folder):
    (code,) = python_blocks("docs/results.md")
    lines = run_code(code, folder, RESULT_CHANGES).splitlines()
    assert len(lines) == 2
    for line in lines:
        score, speed = map(float, line.split())
        assert 0 <= score <= 100 and speed > 0
