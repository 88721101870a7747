"""The Python example and the list of formats of docs/files.md."""

import pathlib
import re

import pytest

from t2t_keras.config import DecodeConfig
from t2t_keras.inference.translator import Translator
from t2t_keras.localization.formats import FORMATS
from tests.inference import tiny
from tests.localization.sample_files import SAMPLES

PAGE = (pathlib.Path(__file__).parents[2] / "docs/files.md").read_text(encoding="utf-8")


@pytest.mark.integration
def test_the_example_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("messages.po").write_text(SAMPLES[".po"])
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    config = DecodeConfig(beam_size=1, max_length_offset=3)
    exec(compile(code, "files.md", "exec"), {"translator": Translator(tiny.tokenizer(), tiny.transformer(), config)})
    assert pathlib.Path("translated.po").read_text().count("#, fuzzy") == 4


def test_the_page_lists_every_format():
    table = "".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `."))
    assert set(re.findall(r"`(\.\w+)`", table)) == set(FORMATS)
