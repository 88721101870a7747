"""The blocks of Python in the documents run as they stand there, but for the size of the training."""

import itertools
import os
import pathlib
import re

import pytest

from tests import programs

ROOT = pathlib.Path(__file__).parents[1]
# What is trained first serves the others. The pages of other chapters, and of changed models, have tests of their own.
PAGES = ("docs/python.md", "docs/translator.md", "docs/attention.md", "README.md")
SMALLER = {
    "vocab_size=8000": "vocab_size=320",
    "train.max_minutes=30": "train.max_steps=4",
    '"mine/run"': '"runs/mine"',
}
WORDS = {
    "A dog": "Ein Hund",
    "The little girl": "Das kleine Mädchen",
    "Two men": "Zwei Köter",
    "runs": "läuft",
    "talk": "reden schnell",
    "climbs into a wooden playhouse": "klettert in ein hölzernes Spielhaus",
}


def blocks() -> list[str]:
    """All blocks; the one that trains is the first."""
    pages = [(ROOT / page).read_text("utf-8") for page in PAGES]
    found = [block for page in pages for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)]
    return sorted(found, key=lambda block: "Trainer(" not in block)


@pytest.mark.integration
def test_the_blocks_run_one_after_the_other(tmp_path):
    english, german = ([*words] for words in (WORDS, WORDS.values()))
    lines = list(itertools.product(range(3), range(3, 6))) * 10
    for name, words in (("a.en", english), ("a.de", german)):
        (tmp_path / name).write_text("".join(f"{words[who]} {words[does]}.\n" for who, does in lines), "utf-8")
    code = "\n".join(blocks())
    for ours, smaller in SMALLER.items():
        assert code.count(ours) == 1
        code = code.replace(ours, smaller)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    done = programs.run(["-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for path in ("saved_models/logits/saved_model.pb", "runs/tuned/config.json", "cross.png", "second_word.svg"):
        assert (tmp_path / path).is_file()
