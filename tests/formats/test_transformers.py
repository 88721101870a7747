"""Models written for Hugging Face's transformers, compared with it where it is installed."""

import gzip
import os
import pathlib
import re

import pytest

from t2t_keras.formats import huggingface
from tests.formats import foreign
from tests.inference import tiny

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

WINDOWS = [
    " ".join(text.split()[start:end]) for text in tiny.SENTENCES[:3] for start in range(3) for end in range(4, 9)
]


def texts() -> list[str]:
    """Returns 200 captions of Multi30k if T2T_KERAS_DOWNLOADS names its directory, otherwise parts of sentences."""
    path = pathlib.Path(os.environ.get("T2T_KERAS_DOWNLOADS", ""), "multi30k", "test_2016_flickr.en.gz")
    return gzip.decompress(path.read_bytes()).decode().splitlines()[:200] if path.is_file() else WINDOWS


# These searches run to the end, like those of this project.
SEARCH = {"num_beams": 4, "early_stopping": "never", "no_repeat_ngram_size": 2, "max_new_tokens": 200}


def load(folder):
    return transformers.MarianMTModel.from_pretrained(folder).eval(), transformers.MarianTokenizer.from_pretrained(
        folder
    )


def translate(model, tokenizer, texts, **search) -> list[str]:
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    actual = tokenizer.batch_decode(model.generate(**inputs, **{**SEARCH, **search}), skip_special_tokens=True)
    return [" ".join(text.split()) for text in actual]  # Translations of this project contain no double blanks.


def test_the_documented_example_translates(tmp_path, monkeypatch, capsys):
    page = (pathlib.Path(__file__).parents[2] / "docs" / "convert.md").read_text(encoding="utf-8")
    (lines,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "transformers" in block)
    model = foreign.trained()
    (tmp_path / "multi30k_transformers").mkdir()
    huggingface.write(model, tmp_path / "multi30k_transformers")
    monkeypatch.chdir(tmp_path)
    text = foreign.TEXTS_TO_COPY[0]
    exec(lines.replace("A dog runs.", text), {})
    (ours,) = foreign.make_translator(model).translate([text])
    assert " ".join(capsys.readouterr().out.split()) == str([ours.text])


def test_a_written_model_translates_the_same(tmp_path):
    model, texts = foreign.trained(), foreign.TEXTS_TO_COPY
    assert huggingface.write(model, tmp_path) == ()
    theirs, tokenizer = load(tmp_path)
    assert [tokenizer(text)["input_ids"] for text in texts] == [
        [number - 1 for number in (*model.tokenizer.encode(text), 1)] for text in texts
    ]
    actual = foreign.make_translator(model).translate(texts)
    expected = translate(theirs, tokenizer, texts, length_penalty=0.0, no_repeat_ngram_size=0)
    assert [translation.text for translation in actual] == expected
    assert len(set(expected)) > 40
