"""Loading an exported model as a translator."""

import pathlib
import shutil

import numpy as np
import pytest

from t2t_keras.config import DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.inference.request import Request
from t2t_keras.inference.translator import Translator
from t2t_keras.inference.translator_settings import TranslatorSettings
from t2t_keras.runs.load import load_model
from t2t_keras.runs.run import Run
from tests.export import exporting
from tests.export.exporting import LINES

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def loaded(version) -> Translator:
    return Translator.load(version)


def test_a_loaded_export_translates_like_the_original(translator, loaded):
    assert loaded.config == translator.config
    for before, after in zip(translator.model.get_weights(), loaded.model.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)
    assert loaded.translate(LINES) == translator.translate(LINES)


def test_a_loaded_export_supports_all_functions_of_a_translator(loaded):
    source = "Two dogs play."
    (translation,) = loaded.translate([Request(source, prefix="Zwei", constraints=("Hunde",))])
    assert translation.text.startswith("Zwei")
    assert "Hunde" in translation.text
    (explanation,) = loaded.explain([source], [translation.text])
    assert explanation.attention.cross.shape[0] == 2
    assert loaded.score([source], [translation.text])[0].log_prob < 0


def test_the_newest_complete_version_is_loaded(version, tmp_path):
    for number in ("9", "10", "11"):
        shutil.copytree(version, tmp_path / number)
    (tmp_path / "11" / "saved_model.pb").unlink()  # an incomplete copy
    (tmp_path / "12.tmp").mkdir()
    assert Run(tmp_path).exported == tmp_path / "10"
    assert Run(tmp_path / "9").exported == tmp_path / "9"
    assert Run(tmp_path / "12.tmp").exported is None
    model, config, vocab_path = load_model(tmp_path)
    assert vocab_path == tmp_path / "10" / "assets" / "vocab.model"
    assert (model.config, config.decode) == (config.model, exporting.DECODE)


def test_an_export_has_no_checkpoints_and_cannot_be_trained(version, tmp_path):
    with pytest.raises(InputError, match="is an exported model: it has no checkpoint 'best'"):
        Translator.load(version, "best")
    run = Run(version)
    with pytest.raises(InputError, match="exported model, which cannot be trained"):
        run.start(run.config, tmp_path, run.vocab_path)
    with pytest.raises(InputError, match="does not record the directory of the data"):
        _ = run.data_dir


def test_damaged_weights_are_an_error(version, tmp_path):
    damaged = tmp_path / "1"
    shutil.copytree(version, damaged)
    (weights,) = (damaged / "variables").glob("*.data-*")
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    with pytest.raises(InputError, match="the weights of the exported model cannot be read"):
        Translator.load(damaged)


def test_excluded_phrases_are_loaded(version, tmp_path):
    copy = tmp_path / "1"
    shutil.copytree(version, copy)
    path = pathlib.Path(copy / "assets.extra" / "config.json")
    path.write_text(path.read_text().replace('"excluded": []', '"excluded": ["Hunde"]'))
    assert Translator.load(copy, settings=DecodeConfig(beam_size=1)).settings.excluded == ("Hunde",)
    settings = TranslatorSettings(excluded=["dog", "Hunde"])
    assert Translator.load(copy, settings=settings).settings.excluded == ("Hunde", "dog")
