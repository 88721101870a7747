"""The blocks of a convolutional model in somebody's functional model, in bfloat16, and as a step."""

from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from t2t_keras.baselines.conv_s2s.convolution_block import (
    AttentiveConvolutionBlock,
    AttentiveConvolutionStep,
    ConvolutionalMemory,
    ConvolutionBlock,
)
from tests.layers.numpy_oracle import randomise

ENCODER: dict[str, Any] = {"width": 5, "kernel_size": 3, "dropout_rate": 0.1}
DECODER: dict[str, Any] = {"width": 5, "kernel_size": 2, "d_model": 6, "dropout_rate": 0.1}


def functional_model(d_in: int = 4) -> keras.Model:
    """An encoder's block and a decoder's, built by their calls."""
    source, target = keras.Input((None, d_in)), keras.Input((None, 6))
    keys = keras.layers.Dense(6)(ConvolutionBlock(**ENCODER)(source))
    mask = keras.layers.Lambda(lambda x: x[:, None, :, 0] < 99)(source)
    memory = ConvolutionalMemory(keys, keys, mask)
    return keras.Model([source, target], AttentiveConvolutionBlock(**DECODER)(target, target, memory))


def example(rng) -> list[np.ndarray]:
    return [rng.standard_normal(shape).astype("float32") for shape in ((2, 3, 4), (2, 7, 6))]


def test_in_a_functional_model(rng):
    model, inputs = functional_model(), example(rng)
    outputs, weights = model(inputs)
    assert [tuple(part.shape) for part in model.outputs] == [(None, None, 5), (None, None, None)]
    assert outputs.shape == (2, 7, 5) and weights.shape == (2, 7, 3)
    np.testing.assert_allclose(np.sum(weights, axis=-1), 1, rtol=1e-5)


@pytest.mark.parametrize(("block", "config"), [(ConvolutionBlock, ENCODER), (AttentiveConvolutionBlock, DECODER)])
def test_their_configurations_are_kept(block, config):
    layer = block(**config, name="mine", dtype="mixed_bfloat16")
    assert config.items() <= layer.get_config().items()
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert type(copy) is block and copy.get_config() == layer.get_config()
    assert copy.convolution.dtype_policy.name == "mixed_bfloat16"


def test_bfloat16_stays_near(rng):
    source, target = example(rng)
    exact, mixed = (ConvolutionBlock(**ENCODER, dtype=policy, name="block") for policy in ("float32", "mixed_bfloat16"))
    expected = exact(source, np.array([[True] * 3, [True, False, False]]))
    mixed(source)
    mixed.set_weights(exact.get_weights())
    outputs = mixed(source, np.array([[True] * 3, [True, False, False]]))
    assert keras.backend.standardize_dtype(outputs.dtype) == "bfloat16"
    assert {keras.backend.standardize_dtype(weight.dtype) for weight in mixed.weights} == {"float32"}
    np.testing.assert_allclose(ops.cast(outputs, "float32"), expected, atol=0.1)


def test_steps_are_the_call(rng):
    """Two hypotheses of each of two sentences."""
    layer = AttentiveConvolutionBlock(**DECODER)
    inputs, embedded = (rng.standard_normal((2, 2, 4, width)).astype("float32") for width in (3, 6))
    memory = ConvolutionalMemory(*(rng.standard_normal((2, 3, 6)).astype("float32") for _ in range(2)), None)
    layer.build((None, None, 3))
    randomise(layer, rng)
    expected = [layer(inputs[:, beam], embedded[:, beam], memory) for beam in range(2)]
    step = AttentiveConvolutionStep(layer, "float32")
    past = step.convolution.empty_past(2, 2, "float32")
    for position in range(4):
        now = [ops.convert_to_tensor(x[:, :, position]) for x in (inputs, embedded)]
        outputs, weights, past = step(*now, ConvolutionalMemory(*map(ops.convert_to_tensor, memory[:2]), None), past)
        for beam in range(2):
            for found, wanted in zip((outputs, weights), expected[beam], strict=True):
                np.testing.assert_allclose(found[:, beam], wanted[:, position], atol=1e-5)
