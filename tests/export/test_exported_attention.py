"""A model with another attention is exported like any other: its graph finds what the translator finds."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.config import Config, DataConfig, DecodeConfig
from t2t_keras.export.writing import export_translator
from t2t_keras.inference.translator import Translator
from t2t_keras.models.transformer import Transformer
from tests.inference import tiny

pytestmark = pytest.mark.integration


@pytest.fixture
def translator() -> Translator:
    """Of an untrained model that is sure of what it says, with additive scores within a window."""
    untrained = tiny.transformer(attention_score="additive", attention_window=2)
    model = Transformer(untrained.config)
    model.build()
    model.set_weights([1.7 * weight for weight in untrained.get_weights()])
    config = DecodeConfig(beam_size=3, min_length=4, max_length_offset=8)
    return Translator(tiny.tokenizer(), model, config, data=DataConfig(max_length=24))


@pytest.mark.slow
def test_additive_scores_within_a_window(translator, tmp_path):
    data = DataConfig(vocab_size=tiny.tokenizer().vocab_size, max_length=24)
    config = Config(model=translator.model.config, data=data, decode=translator.config)
    signatures = tf.saved_model.load(str(export_translator(translator, config, tmp_path / "variant"))).signatures
    expected = translator.translate(tiny.SENTENCES)
    found = signatures["serving_default"](text=tf.constant(tiny.SENTENCES))
    assert [text.decode() for text in found["translation"].numpy()] == [translation.text for translation in expected]
    np.testing.assert_allclose(found["score"], [translation.score for translation in expected], rtol=1e-5)
    assert len({translation.text for translation in expected}) > 2
