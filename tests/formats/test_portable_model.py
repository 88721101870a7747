"""What all formats have in common: a model that is not whole is refused before a run is made of it."""

import dataclasses

import foreign
import numpy as np
import pytest
import tiny

from t2t_keras.config import Config, TransformerConfig
from t2t_keras.errors import InputError
from t2t_keras.formats.portable_model import PortableModel, check_whole

CONFIG = TransformerConfig(vocab_size=tiny.tokenizer().vocab_size, **tiny.MODEL)
MODEL = PortableModel(Config(CONFIG), foreign.random_weights(CONFIG), tiny.tokenizer())


def test_a_whole_model_is_taken():
    check_whole("folder", MODEL)


@pytest.mark.parametrize(
    "weights, message",
    [
        ({"encoder/layer_0/feed_forward/inner_bias": np.zeros(3)}, r"inner_bias is \[3\] instead of \[32\]"),
        ({"other": np.zeros(3)}, r"folder: other is \[3\] instead of \['nothing'\]"),
    ],
)
def test_other_weights_are_named(weights, message):
    with pytest.raises(InputError, match=message):
        check_whole("folder", dataclasses.replace(MODEL, weights={**MODEL.weights, **weights}))


def test_settings_that_no_run_can_have_are_named():
    config = dataclasses.replace(MODEL.config, model=dataclasses.replace(CONFIG))
    object.__setattr__(config.model, "dropout_rate", "x")
    with pytest.raises(InputError, match="^folder: model.dropout_rate must be of type float, got 'x'"):
        check_whole("folder", dataclasses.replace(MODEL, config=config))
