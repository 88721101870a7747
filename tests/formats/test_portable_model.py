"""Checks that all formats share: incomplete models are rejected before a run is created."""

import dataclasses

import numpy as np
import pytest

from t2t_keras.config import Config, DataConfig, DecodeConfig, TransformerConfig
from t2t_keras.errors import InputError
from t2t_keras.formats.portable_model import PortableModel, check_model, text_notes
from tests.formats import foreign
from tests.inference import tiny

CONFIG = TransformerConfig(vocab_size=tiny.tokenizer().vocab_size, **tiny.MODEL)
MODEL = PortableModel(Config(CONFIG), foreign.random_weights(CONFIG), tiny.tokenizer())
BIAS = "encoder/layer_0/feed_forward/inner_bias"


def test_a_complete_model_is_accepted():
    check_model("folder", MODEL)


@pytest.mark.parametrize(
    "weights, message",
    [
        ({BIAS: np.zeros(3)}, r"inner_bias must have shape \[32\], got \[3\]"),
        ({"other": np.zeros(3)}, "folder: the weight other does not belong to this model"),
        ({BIAS: np.array([0.0] * 31 + [np.nan])}, f"^folder: {BIAS} has values that are infinite or NaN"),
        ({BIAS: np.array([-np.inf] + [0.0] * 31)}, f"^folder: {BIAS} has values that are infinite or NaN"),
    ],
)
def test_wrong_weights_are_rejected(weights, message):
    with pytest.raises(InputError, match=message):
        check_model("folder", dataclasses.replace(MODEL, weights={**MODEL.weights, **weights}))


def model_of(tokenizer=MODEL.tokenizer, **data) -> PortableModel:
    config = dataclasses.replace(MODEL.config, data=DataConfig(**data))
    return dataclasses.replace(MODEL, config=config, tokenizer=tokenizer)


def test_features_that_other_engines_lack_are_noted():
    lowercase = "lowercase each text before Engine reads it, because the training text was lowercased"
    task = "Engine returns the raw output of the model; it does not support the task classification"
    assert text_notes(model_of(), "Engine") == ()
    assert text_notes(model_of(lowercase="both"), "Engine") == (lowercase,)
    assert text_notes(model_of(task="classification"), "Engine") == (task,)
    tagged = dataclasses.replace(MODEL, config=dataclasses.replace(MODEL.config, decode=DecodeConfig(tag="<2fr>")))
    assert text_notes(tagged, "Engine") == ("each text must begin with the tag <2fr>, which Engine does not add",)
    assert "capitalise the first letter of each output of Engine" in text_notes(model_of(truecase=True), "Engine")[0]
    assert text_notes(model_of(lowercase="both", task="classification"), "Engine") == (lowercase, task)
