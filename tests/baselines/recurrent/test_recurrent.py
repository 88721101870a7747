"""LSTMs: comparison with Keras, projection and attention."""

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
    """Both order the gates as input, forget, candidate, output."""
    inputs = rng.standard_normal((3, 7, 5)).astype("float32")
    mask = np.arange(7) < np.array([[7], [3], [5]])
    layer, reference = LSTM(4, reverse=reverse), keras.layers.LSTM(4, return_sequences=True, go_backwards=reverse)
    layer(inputs), reference(inputs)
    randomise(layer, rng)
    reference.set_weights([layer.kernel, layer.recurrent_kernel, layer.bias])
    outputs = np.array(layer(inputs, mask))
    for row, length in enumerate((7, 3, 5)):  # Keras would read the padding first with go_backwards.
        expected = np.array(reference(inputs[row : row + 1, :length]))[0]
        np.testing.assert_allclose(outputs[row, :length], expected[::-1] if reverse else expected, atol=1e-5)


def test_the_forget_gates_bias_starts_at_one():
    layer = LSTM(3)
    layer.build((None, None, 2))
    np.testing.assert_array_equal(layer.bias, [0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0])
    assert ops.shape(layer.recurrent_kernel) == (3, 12)


def test_padding_after_the_tokens_keeps_the_state(rng):
    inputs, mask = rng.standard_normal((1, 5, 2)).astype("float32"), np.array([[True, True, False, False, False]])
    layer = LSTM(3)
    outputs = np.array(layer(inputs, mask))
    np.testing.assert_array_equal(outputs[:, 2:], np.repeat(outputs[:, 1:2], 3, axis=1))
    changed = inputs.copy()
    changed[:, 2:] += 1
    np.testing.assert_array_equal(layer(changed, mask), outputs)


def test_attention_to_a_single_position_returns_that_position(rng):
    inputs, memory = (rng.standard_normal(shape).astype("float32") for shape in ((2, 4, 3), (2, 5, 6)))
    layer = AttentiveLSTM(4, d_attention=7)
    bias = np.where(np.arange(5) == 2, 0, -1e9).astype("float32")[None, None]
    outputs, contexts = layer(inputs, memory, bias)
    assert outputs.shape == (2, 4, 4)
    np.testing.assert_allclose(contexts, np.repeat(memory[:, 2:3], 4, axis=1), rtol=1e-6)
    expected = layer.lstm(np.concatenate([inputs, contexts], axis=2))
    np.testing.assert_allclose(outputs, expected, atol=1e-5)


@pytest.mark.parametrize("score", ["additive", "multiplicative"])
@pytest.mark.parametrize("projection", [None, 3])
def test_the_scan_has_the_gradients_of_the_plain_loop(rng, monkeypatch, projection, score):
    inputs, memory = (tf.constant(rng.standard_normal(shape), "float32") for shape in ((2, 4, 3), (2, 5, 6)))
    layer = AttentiveLSTM(4, d_attention=7, projection=projection, score=score)
    layer(inputs, memory)
    randomise(layer, rng)

    def gradients() -> list:
        with tf.GradientTape() as tape:
            tape.watch([inputs, memory])
            loss = sum(tf.reduce_sum(x * tf.sin(tf.range(4.0))[:, None]) for x in layer(inputs, memory))
        return tape.gradient(loss, [inputs, memory, *(weight.value for weight in layer.trainable_weights)])

    scan_gradients = gradients()
    monkeypatch.setattr(kernels, "recurrent_scan", kernels.plain.recurrent_scan)
    for gradient, expected in zip(scan_gradients, gradients(), strict=True):
        assert np.abs(expected).max() > 1e-3
        np.testing.assert_allclose(gradient, expected, atol=1e-5)


def test_separate_products_of_inputs_and_contexts_equal_the_concatenated_product(rng):
    inputs, contexts = (rng.standard_normal(shape).astype("float32") for shape in ((2, 4, 3), (2, 4, 6)))
    layer = AttentiveLSTM(4, d_attention=7)
    layer(inputs, contexts)
    randomise(layer, rng)
    expected = layer.lstm.gates(np.concatenate([inputs, contexts], axis=-1))
    separate = layer.gates(inputs)[..., :8] + layer.context_gates(contexts, 8)
    np.testing.assert_allclose(separate, expected[..., :8], atol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_projection_equals_a_plain_lstm_with_a_combined_kernel(rng, reverse):
    """The plain layer's recurrent kernel is the product of both kernels, and the test projects its output."""
    inputs, mask = rng.standard_normal((3, 5, 2)).astype("float32"), np.arange(5) < np.array([[5], [1], [3]])
    layer, plain = LSTM(6, reverse, projection=3), LSTM(6, reverse)
    layer(inputs), plain(inputs)
    randomise(layer, rng)
    combined = numbers(layer.projection_kernel) @ numbers(layer.recurrent_kernel)
    plain.set_weights([layer.kernel, combined, layer.bias])
    expected = np.array(plain(inputs, mask)) @ numbers(layer.projection_kernel)
    np.testing.assert_allclose(layer(inputs, mask), expected, atol=1e-5)
