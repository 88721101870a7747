"""Packages for Argos Translate: their files, and their translation."""

import dataclasses
import json
import zipfile

import pytest
import sentencepiece

from t2t_keras.config import Config, DataConfig, TransformerConfig
from t2t_keras.formats import argos
from t2t_keras.formats.portable_model import PortableModel
from tests.formats import foreign
from tests.inference import tiny

NAME = "translate-en_pt_BR-1_0"


@pytest.fixture
def model():
    sizes = TransformerConfig(vocab_size=tiny.tokenizer().vocab_size, **tiny.MODEL)
    config = Config(sizes, DataConfig(source_language="en", target_language="pt_BR"))
    return PortableModel(config, foreign.random_weights(sizes), tiny.tokenizer())


def test_the_files_of_a_package(model, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2")
    assert argos.write(model, tmp_path) == ()
    (file,) = tmp_path.iterdir()
    assert file.name == f"{NAME}.argosmodel"
    (tmp_path / "installed").mkdir()
    with zipfile.ZipFile(file) as package:
        assert package.testzip() is None
        package.extractall(tmp_path / "installed")
    (root,) = (tmp_path / "installed").iterdir()
    assert root.name == NAME
    names = {"metadata.json", "README.md", "sentencepiece.model", "model"}
    assert {path.name for path in root.iterdir()} == names
    assert json.loads((root / "metadata.json").read_text(encoding="utf-8")) == {
        "type": "translate",
        "package_version": "1.0",
        "argos_version": "1.11",
        "from_code": "en",
        "from_name": "English",
        "to_code": "pt_BR",
        "to_name": "Portuguese (BR)",
    }
    # The vocabulary must match the model.
    pieces = sentencepiece.SentencePieceProcessor(str(root / "sentencepiece.model"))
    (result,) = ctranslate2.Translator(str(root / "model")).translate_batch(pieces.encode(["A dog."], out_type=str))
    assert all(piece in model.tokenizer.entries for piece in result.hypotheses[0])


def test_unsupported_features_are_noted(model, tmp_path):
    pytest.importorskip("ctranslate2")
    config = Config(model.sizes, DataConfig(truecase=True, task="classification"))
    task, capital = argos.write(dataclasses.replace(model, config=config), tmp_path)
    assert task.startswith("Argos Translate returns the raw output of the model")
    assert capital.startswith("capitalise the first letter of each output of Argos Translate")
