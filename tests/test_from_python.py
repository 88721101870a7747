"""The blocks of Python in the documents run as they stand there, but for the size of the training."""

import importlib.util
import itertools
import os
import pathlib
import re

import pytest

from tests import programs

ROOT = pathlib.Path(__file__).parents[1]
# What is trained first serves the others. The pages of other chapters, and of changed models, have tests of their own.
PAGES = ("docs/python.md", "docs/translator.md", "docs/attention.md", "README.md")
MISSING = [name for name in ("tokenizers", "tiktoken") if importlib.util.find_spec(name) is None]
# An encoding without a file to download: each byte is a token.
BYTES = 'tiktoken.Encoding("b", pat_str=".", mergeable_ranks={bytes([i]): i for i in range(256)}, special_tokens={})'
SMALLER = {
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


RESULTS = {
    **{"data/multi30k": "data/mine", "runs/multi30k": "runs/mine", '"test"': '"valid"'},
    **{"DecodeConfig(beam_size=5)": SMALLER["DecodeConfig(beam_size=5)"]},
}


def blocks(*pages: str) -> list[str]:
    texts = [(ROOT / page).read_text("utf-8") for page in pages]
    return [block for text in texts for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]


def printed(code: str, folder: pathlib.Path, changes: dict[str, str]) -> str:
    for documented, here in changes.items():
        assert code.count(documented) == 1
        code = code.replace(documented, here)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    command = ["-c", code]
    done = programs.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """Where the blocks were run one after the other, the one that trains first."""
    folder = tmp_path_factory.mktemp("reader")
    english, german = ([*words] for words in (WORDS, WORDS.values()))
    lines = list(itertools.product(range(3), range(3, 6))) * 10
    for name, words in (("a.en", english), ("a.de", german)):
        (folder / name).write_text("".join(f"{words[who]} {words[does]}.\n" for who, does in lines), "utf-8")
    runnable = [block for block in blocks(*PAGES) if not any(f"import {name}" in block for name in MISSING)]
    printed("\n".join(sorted(runnable, key=lambda block: "data, strategy).train()" not in block)), folder, SMALLER)
    return folder


@pytest.mark.integration
def test_the_blocks_leave_what_they_say(folder):
    for path in ("saved_models/logits/saved_model.pb", "runs/tuned/config.json", "cross.png", "second_word.svg"):
        assert (folder / path).is_file()


@pytest.mark.integration
def test_what_measures_results_runs_on_that_run(folder):
    (code,) = blocks("docs/results.md")
    lines = printed(code, folder, RESULTS).splitlines()
    assert len(lines) == 2
    for line in lines:
        score, speed = map(float, line.split())
        assert 0 <= score <= 100 and speed > 0
