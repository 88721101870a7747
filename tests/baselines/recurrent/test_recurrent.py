"""Long short-term memories against Keras's own, and with attention."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from t2t_keras import kernels
from t2t_keras.baselines.recurrent.recurrent import LSTM, AttentiveLSTM
from tests.layers.numpy_oracle import numbers, randomise


@pytest.mark.parametrize("reverse", [False, True])
def test_equals_keras(rng, reverse):
    """Its order of the gates is input, forget, candidate, output as well."""
    inputs = rng.standard_normal((3, 7, 5)).astype("float32")
    mask = np.arange(7) < np.array([[7], [3], [5]])
    layer, other = LSTM(4, reverse=reverse), keras.layers.LSTM(4, return_sequences=True, go_backwards=reverse)
    layer(inputs), other(inputs)
    randomise(layer, rng)
    other.set_weights([layer.kernel, layer.recurrent_kernel, layer.bias])
    outputs = np.array(layer(inputs, mask))
    for row, length in enumerate((7, 3, 5)):  # without padding, which Keras reads first when it goes backwards
        expected = np.array(other(inputs[row : row + 1, :length]))[0]
        np.testing.assert_allclose(outputs[row, :length], expected[::-1] if reverse else expected, atol=1e-5)


def test_the_gate_that_keeps_the_cell_begins_open():
    layer = LSTM(3)
    layer.build((None, None, 2))
    np.testing.assert_array_equal(layer.bias, [0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0])
    assert ops.shape(layer.recurrent_kernel) == (3, 12)


def test_padding_behind_the_tokens_hands_the_state_on(rng):
    inputs, mask = rng.standard_normal((1, 5, 2)).astype("float32"), np.array([[True, True, False, False, False]])
    layer = LSTM(3)
    outputs = np.array(layer(inputs, mask))
    np.testing.assert_array_equal(outputs[:, 2:], np.repeat(outputs[:, 1:2], 3, axis=1))
    changed = inputs.copy()
    changed[:, 2:] += 1
    np.testing.assert_array_equal(layer(changed, mask), outputs)


def test_attention_to_nothing_but_one_position_is_that_position(rng):
    inputs, memory = (rng.standard_normal(shape).astype("float32") for shape in ((2, 4, 3), (2, 5, 6)))
    layer = AttentiveLSTM(4, d_attention=7)
    bias = np.where(np.arange(5) == 2, 0, -1e9).astype("float32")[None, None]
    outputs, contexts = layer(inputs, memory, bias)
    assert outputs.shape == (2, 4, 4)
    np.testing.assert_allclose(contexts, np.repeat(memory[:, 2:3], 4, axis=1), rtol=1e-6)
    plain = layer.lstm(np.concatenate([inputs, contexts], axis=2))
    np.testing.assert_allclose(outputs, plain, atol=1e-5)


@pytest.mark.parametrize("score", ["additive", "multiplicative"])
@pytest.mark.parametrize("projection", [None, 3])
def test_gradients_with_attention_are_those_of_the_product_in_each_step(rng, monkeypatch, projection, score):
    inputs, memory = (tf.constant(rng.standard_normal(shape), "float32") for shape in ((2, 4, 3), (2, 5, 6)))
    layer = AttentiveLSTM(4, d_attention=7, projection=projection, score=score)
    layer(inputs, memory)
    randomise(layer, rng)

    def gradients() -> list:
        with tf.GradientTape() as tape:
            tape.watch([inputs, memory])
            loss = sum(tf.reduce_sum(x * tf.sin(tf.range(4.0))[:, None]) for x in layer(inputs, memory))
        return tape.gradient(loss, [inputs, memory, *(weight.value for weight in layer.trainable_weights)])

    at_once = gradients()
    monkeypatch.setattr(kernels, "recurrent_scan", kernels.plain.recurrent_scan)
    for gradient, expected in zip(at_once, gradients(), strict=True):
        assert np.abs(expected).max() > 1e-3
        np.testing.assert_allclose(gradient, expected, atol=1e-5)


def test_contexts_add_to_the_gates_what_joined_inputs_add(rng):
    inputs, contexts = (rng.standard_normal(shape).astype("float32") for shape in ((2, 4, 3), (2, 4, 6)))
    layer = AttentiveLSTM(4, d_attention=7)
    layer(inputs, contexts)
    randomise(layer, rng)
    joined = layer.lstm.gates(np.concatenate([inputs, contexts], axis=-1))
    apart = layer.gates(inputs)[..., :8] + layer.context_gates(contexts, 8)
    np.testing.assert_allclose(apart, joined[..., :8], atol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_projection_is_what_is_handed_on(rng, reverse):
    """As a memory without one, whose recurrent kernel is the product of both, and whose output is projected."""
    inputs, mask = rng.standard_normal((3, 5, 2)).astype("float32"), np.arange(5) < np.array([[5], [1], [3]])
    layer, plain = LSTM(6, reverse, projection=3), LSTM(6, reverse)
    layer(inputs), plain(inputs)
    randomise(layer, rng)
    joined = numbers(layer.projection_kernel) @ numbers(layer.recurrent_kernel)
    plain.set_weights([layer.kernel, joined, layer.bias])
    expected = np.array(plain(inputs, mask)) @ numbers(layer.projection_kernel)
    np.testing.assert_allclose(layer(inputs, mask), expected, atol=1e-5)
