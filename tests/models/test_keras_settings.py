"""The settings of keras.json do not change the results of a run."""

import contextlib
from collections.abc import Iterator

import keras
import numpy as np
import pytest

from t2t_keras.models.families import make_model
from t2t_keras.models.transformer import Transformer
from tests.programs import ROOT
from tests.training.tiny_families import TINY, tiny_family

GOLDEN = ROOT / "tests" / "golden" / "run"
UNUSUAL = {"floatx": "float16", "epsilon": 0.01, "image_data_format": "channels_first"}


@contextlib.contextmanager
def unusual_settings() -> Iterator[None]:
    floatx, policy = keras.config.floatx(), keras.config.dtype_policy()
    image_data_format, epsilon = keras.config.image_data_format(), keras.config.epsilon()
    keras.config.set_floatx(UNUSUAL["floatx"])
    keras.config.set_dtype_policy(UNUSUAL["floatx"])  # Keras derives this default from the floatx.
    keras.config.set_image_data_format(UNUSUAL["image_data_format"])
    keras.config.set_epsilon(UNUSUAL["epsilon"])
    try:
        yield
    finally:
        keras.config.set_floatx(floatx)
        keras.config.set_dtype_policy(policy)
        keras.config.set_image_data_format(image_data_format)
        keras.config.set_epsilon(epsilon)


def logits_of(family: str) -> np.ndarray:
    keras.utils.set_random_seed(1)
    model = make_model(tiny_family(family))
    assert {weight.dtype for weight in model.trainable_variables} == {"float32"}
    ids = np.array([[5, 6, 7, 1, 0], [8, 9, 1, 0, 0]], np.int32)
    inputs = {"source": ids, "target": ids[:, ::-1].copy()}
    return keras.ops.convert_to_numpy(model.logits(model.states(inputs).hidden))


@pytest.mark.quick("transformer")
@pytest.mark.parametrize("family", TINY)
def test_models_of_runs_compute_in_float32_under_any_keras_settings(family):
    expected = logits_of(family)
    with unusual_settings():
        actual = logits_of(family)
        assert keras.config.floatx() == keras.config.dtype_policy().name == UNUSUAL["floatx"]
    np.testing.assert_array_equal(actual, expected)


def test_models_and_layers_of_users_follow_the_keras_settings():
    with unusual_settings():
        model = Transformer(tiny_family("transformer"))
        model.build()
        loaded = Transformer.from_preset(GOLDEN)
    for model_or_layer in (model, loaded):
        assert model_or_layer.compute_dtype == "float16" == model_or_layer.output_head.table.dtype
