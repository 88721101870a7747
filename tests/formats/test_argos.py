"""Packages for Argos Translate: their files are those that it describes, and it translates with them as we do."""

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import zipfile

import pytest
import sentencepiece

from t2t_keras.config import Config, DataConfig, TransformerConfig
from t2t_keras.formats import argos
from t2t_keras.formats.portable_model import PortableModel
from tests.formats import foreign
from tests.inference import tiny

NAME = "translate-en_pt_BR-1_0"
# An interpreter with argostranslate, which need not be this one: it brings several GB of other packages.
PYTHON = os.environ.get("ARGOS_PYTHON", sys.executable if importlib.util.find_spec("argostranslate") else "")

# Without its models for splitting text into sentences, which it would download.
INSTALL_AND_TRANSLATE = """
import json, sys
from argostranslate import package, translate
from ctranslate2 import Translator
package.install_from_path(sys.argv[1])
(installed,) = package.get_installed_packages()
translation = translate.get_translation_from_codes(installed.from_code, installed.to_code).underlying
translation.sentencizer.split_sentences = lambda text: [text]
class WithoutPenalty:
    def __init__(self):
        self.translator = Translator(str(installed.package_path / "model"), compute_type="float32")
    def translate_batch(self, tokens, **settings):
        return self.translator.translate_batch(tokens, **{**settings, "length_penalty": 0, "min_decoding_length": 0})
translation.translator = WithoutPenalty()
print(json.dumps([translation.translate(text) for text in json.load(sys.stdin)]))
"""


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
        "to_name": "Portuguese (br)",
    }
    # The vocabulary and the model fit each other.
    pieces = sentencepiece.SentencePieceProcessor(str(root / "sentencepiece.model"))
    (result,) = ctranslate2.Translator(str(root / "model")).translate_batch(pieces.encode(["A dog."], out_type=str))
    assert all(piece in model.tokenizer.entries for piece in result.hypotheses[0])


def test_what_a_package_lacks(model, tmp_path):
    pytest.importorskip("ctranslate2")
    config = Config(model.sizes, DataConfig(truecase=True, task="classification"))
    task, capital = argos.write(dataclasses.replace(model, config=config), tmp_path)
    assert task.startswith("Argos Translate returns the raw output of the model")
    assert capital.startswith("the first letter of each output of Argos Translate must be capitalised")


@pytest.mark.integration
@pytest.mark.skipif(not PYTHON, reason="argostranslate is missing")
def test_argostranslate_itself_translates_as_we_do(tmp_path):
    pytest.importorskip("ctranslate2")
    model, texts = foreign.trained(), foreign.TEXTS_TO_COPY
    argos.write(model, tmp_path)
    (file,) = tmp_path.iterdir()
    folders = {f"XDG_{kind}_HOME": str(tmp_path / kind) for kind in ("DATA", "CONFIG", "CACHE")}
    result = subprocess.run(
        [PYTHON, "-c", INSTALL_AND_TRANSLATE, str(file)],
        input=json.dumps(texts),
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | folders,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    expected = [translation.text for translation in foreign.translator_of(model).translate(texts)]
    # A translation here has no two blanks in a row, and none at its end.
    found = [" ".join(text.split()) for text in json.loads(result.stdout)]
    assert found == expected and len(set(expected)) > 40
