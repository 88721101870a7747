"""Attention against NumPy, masks, dropout and cached positions."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from t2t_keras.layers import MultiHeadAttention, causal_mask, scaled_dot_product_attention
from t2t_keras.layers.attention.scores import dot_product_attention
from tests.layers import numpy_oracle
from tests.layers.collected import call_with_weights

SCORES = ("scaled_dot", "dot", "additive")


def test_scaled_dot_product_attention_equals_the_formula(rng):
    queries, keys, values = (rng.standard_normal((n, d)) for n, d in ((4, 6), (5, 6), (5, 3)))
    mask = rng.random((4, 5)) < 0.6
    mask[:, 0] = True
    outputs, weights = scaled_dot_product_attention(
        *(ops.convert_to_tensor(x, "float32") for x in (queries, keys, values)), mask
    )
    assert tuple(weights.shape) == (4, 5)
    np.testing.assert_allclose(np.array(weights).sum(-1), 1.0, rtol=1e-6)
    assert np.all(np.array(weights)[~mask] == 0)
    np.testing.assert_allclose(outputs, numpy_oracle.attention(queries, keys, values, mask), atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "size"), [("float32", 30), ("float64", 30), ("bfloat16", 30), ("float16", 1), ("float32", 1)]
)
def test_a_fully_masked_query_attends_to_all_keys_equally(rng, dtype, size):
    x = ops.cast(size * rng.standard_normal((4, 8)), dtype)
    _, weights = scaled_dot_product_attention(x, x, x, np.zeros((4, 4), bool))
    np.testing.assert_allclose(ops.cast(weights, "float32"), 0.25, rtol=0.02)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_hidden_keys_weigh_exactly_nothing(rng, dtype):
    x = ops.cast(10 * rng.standard_normal((4, 8)), dtype)
    _, weights = scaled_dot_product_attention(x, x, x, np.array([True, True, False, True]))
    assert np.all(np.array(ops.cast(weights, "float32"))[:, 2] == 0)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize(("num_heads", "d_key", "d_value"), [(1, 8, None), (2, 4, None), (4, 3, 5)])
def test_multi_head_attention_equals_the_formula(rng, num_heads, d_key, d_value, use_bias, score):
    query, memory = rng.standard_normal((2, 4, 8)), rng.standard_normal((2, 5, 6))
    mask = rng.random((2, 4, 5)) < 0.6
    mask[..., 0] = True
    layer = MultiHeadAttention(num_heads, d_key, d_value, use_bias=use_bias, score=score)
    layer.build((None, None, 8), (None, None, 6))
    numpy_oracle.randomise(layer, rng)
    outputs = layer(query.astype("float32"), memory.astype("float32"), mask[:, None])
    assert tuple(outputs.shape) == (2, 4, 8)
    expected = numpy_oracle.multi_head_attention(layer, query, memory, mask)
    np.testing.assert_allclose(outputs, expected, atol=2e-5)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("use_bias", [True, False])
def test_collected_weights_are_those_of_the_call(rng, use_bias, score):
    query, memory = rng.standard_normal((2, 4, 8)), rng.standard_normal((2, 5, 6))
    mask = rng.random((2, 4, 5)) < 0.6
    mask[..., 0] = True
    layer = MultiHeadAttention(3, 4, 5, dropout_rate=0.5, use_bias=use_bias, score=score)
    layer.build((None, None, 8), (None, None, 6))
    numpy_oracle.randomise(layer, rng)
    query32, memory32 = (ops.convert_to_tensor(x, "float32") for x in (query, memory))
    outputs, weights = call_with_weights(layer, query32, memory32, mask[:, None])
    expected = numpy_oracle.attention_weights(layer, query, memory, mask)
    assert tuple(weights.shape) == expected.shape == (2, 3, 4, 5)
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    assert np.all(np.array(weights)[~np.broadcast_to(mask[:, None], weights.shape)] == 0)
    values = ops.matmul(memory32, layer.value_kernel) + (0 if layer.value_bias is None else layer.value_bias)
    values = ops.transpose(ops.reshape(values, (2, 5, 3, 5)), (0, 2, 1, 3))  # --> [batch, heads, key_len, d_value]
    heads = ops.transpose(ops.matmul(weights, values), (0, 2, 1, 3))  # --> [batch, query_len, heads, d_value]
    expected = ops.matmul(ops.reshape(heads, (2, 4, 15)), layer.output_kernel)
    expected = expected if layer.output_bias is None else expected + layer.output_bias
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    np.testing.assert_allclose(outputs, layer(query32, memory32, mask[:, None]), atol=1e-6)


@pytest.mark.parametrize("d_value", [None, 3])
def test_self_attention_equals_the_formula(rng, d_value):
    """Self-attention can use a different code path, because query and memory are the same tensor."""
    x = rng.standard_normal((2, 4, 8))
    mask = np.broadcast_to(np.array(causal_mask(4))[0], (2, 4, 4))
    layer = MultiHeadAttention(2, 4, d_value)
    layer.build((None, None, 8), (None, None, 8))
    numpy_oracle.randomise(layer, rng)
    x32 = ops.convert_to_tensor(x, "float32")
    expected = numpy_oracle.multi_head_attention(layer, x, x, mask)
    np.testing.assert_allclose(layer(x32, x32, causal_mask(4)), expected, atol=2e-5)
    np.testing.assert_allclose(layer(x32, ops.copy(x32), causal_mask(4)), expected, atol=2e-5)


@pytest.mark.parametrize(
    "shape", [(5,), (4, 5), (2, 4, 5), (2, 1, 5), (1, 4, 5), (2, 3, 4, 5), (2, 1, 1, 5), (1, 3, 4, 1)]
)
def test_a_mask_of_any_shape_that_broadcasts(rng, shape):
    query, memory = (rng.standard_normal((2, length, 8)).astype("float32") for length in (4, 5))
    mask = rng.random(shape) < 0.6
    layer = MultiHeadAttention(3, 4, 4)
    layer.build((None, None, 8), (None, None, 8))
    numpy_oracle.randomise(layer, rng)
    with_heads = mask[:, None] if mask.ndim == 3 else mask  # like Keras's own layer
    full_mask = np.broadcast_to(with_heads, (2, 3, 4, 5)).copy()
    np.testing.assert_allclose(layer(query, memory, mask), layer(query, memory, full_mask), atol=1e-6)


@pytest.mark.parametrize("score", SCORES)
def test_attending_to_projected_memory_equals_the_call(rng, score):
    query, memory = (ops.convert_to_tensor(rng.standard_normal((2, n, 8)), "float32") for n in (4, 5))
    layer = MultiHeadAttention(2, 4, 3, score=score)
    mask = np.array([True, True, True, False, True])
    outputs = layer(query, memory, mask)
    projected = layer.keys_and_values(memory)
    assert [tuple(projection.shape) for projection in projected] == [(2, 2, 5, 4), (2, 2, 5, 3)]
    np.testing.assert_allclose(layer(query, projected, mask), outputs, atol=1e-6)


def test_an_initializer_draws_each_kernel_separately(rng):
    layer = MultiHeadAttention(3, 4, 4, query_key_initializer=keras.initializers.LecunUniform())
    layer.build((None, None, 8), (None, None, 8))
    assert np.abs(layer.query_kernel - layer.key_kernel).max() > 0.01
    copy = MultiHeadAttention.from_config(layer.get_config())
    assert isinstance(copy.query_key_initializer, keras.initializers.LecunUniform)


def test_a_gain_scales_the_initial_queries_keys_and_values_only():
    """With the same draws, the three kernels are scaled by fairseq's 1 / sqrt(2) and the output kernel by 1."""
    kernels = {}
    for gain in (1.0, 0.5**0.5):
        keras.utils.set_random_seed(3)
        layer = MultiHeadAttention(3, 4, 5, gain=gain)
        layer.build((None, None, 8), (None, None, 6))
        kernels[gain] = {weight.name: ops.convert_to_numpy(weight) for weight in layer.weights}
        assert MultiHeadAttention.from_config(layer.get_config()).gain == gain
    for name, before in kernels[1.0].items():
        factor = 0.5**0.5 if name in ("query_kernel", "key_kernel", "value_kernel") else 1
        np.testing.assert_allclose(kernels[0.5**0.5][name], factor * before, rtol=1e-6, err_msg=name)
    assert len(kernels[1.0]) == 8
    with pytest.raises(ValueError, match="`gain` must be a finite number above 0, got 0"):
        MultiHeadAttention(3, gain=0)


def test_missing_keys_within_a_window_get_no_attention(rng):
    """If the lengths are known, a memory of a different length is an error."""
    layer, x = MultiHeadAttention(2, 4, window=(1, 1)), rng.standard_normal((2, 5, 8)).astype("float32")
    unknown = [tf.TensorSpec([None, None, 8])] * 2
    attend = tf.function(lambda query, memory: layer(query, memory), input_signature=unknown)
    expected = layer(x, x, np.array([True, True, True, False, False])[None, None, None])
    np.testing.assert_allclose(attend(x, x[:, :3])[:, :4], expected[:, :4], atol=1e-6)


def test_fully_masked_rows_and_their_gradients_are_finite(rng):
    layer = MultiHeadAttention(2, 4)
    x = tf.constant(rng.standard_normal((2, 3, 8)), tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(x)
        outputs = layer(x, x, np.zeros((2, 1, 1, 3), bool))
    assert np.all(np.isfinite(outputs))
    assert np.all(np.isfinite(tape.gradient(outputs, x)))


def test_attention_dropout_acts_in_training_and_depends_on_the_seed(rng):
    x = ops.convert_to_tensor(rng.standard_normal((2, 5, 8)), "float32")
    layer = MultiHeadAttention(2, 4, dropout_rate=0.5)
    seed, other_seed = ops.convert_to_tensor([1, 2], "int32"), ops.convert_to_tensor([1, 3], "int32")
    undropped, dropped = np.array(layer(x, x, seed=seed)), np.array(layer(x, x, seed=seed, training=True))
    np.testing.assert_array_equal(dropped, layer(x, x, seed=seed, training=True))
    assert np.abs(dropped - undropped).max() > 1e-3
    assert np.abs(dropped - np.array(layer(x, x, seed=other_seed, training=True))).max() > 1e-3
    np.testing.assert_array_equal(undropped, layer(x, x))


def test_additive_attention_has_an_additional_vector_per_head():
    weights = {}
    for score in SCORES:
        layer = MultiHeadAttention(2, 4, score=score, name="attention")
        layer.build((None, None, 8), (None, None, 8))
        weights[score] = {weight.path: tuple(weight.shape) for weight in layer.trainable_variables}
    assert weights["additive"].pop("attention/score_vector") == (2, 4)
    assert weights["additive"] == weights["dot"] == weights["scaled_dot"]


def test_a_layer_without_bias_has_four_matrices():
    layer = MultiHeadAttention(2, 4, use_bias=False)
    layer.build((None, None, 8), (None, None, 8))
    assert layer.count_params() == 4 * 8 * 8


def test_dot_product_attention_equals_the_formula(rng):
    queries, keys, values = (rng.standard_normal((length, 4)).astype("float32") for length in (3, 5, 5))
    outputs, weights = dot_product_attention(queries, keys, values)
    expected = np.exp(queries @ keys.T)
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    np.testing.assert_allclose(outputs, expected @ values, atol=1e-5)


def test_past_positions_are_attended_to_and_extended(rng):
    """Two calls, the second with the past of the first, equal one causal call on all positions."""
    x = rng.standard_normal((2, 5, 8)).astype("float32")
    layer = MultiHeadAttention(num_heads=2)
    expected = layer(x, x, causal_mask(5))
    first, past = layer(x[:, :3], x[:, :3], causal_mask(3), past=layer.empty_keys_and_values(2))
    second, past = layer(x[:, 3:], x[:, 3:], causal_mask(5)[..., 3:, :], past=past)
    np.testing.assert_allclose(np.concatenate([first, second], axis=1), expected, rtol=1e-5, atol=1e-6)
    for extended, full_mask in zip(past, layer.keys_and_values(x), strict=True):
        np.testing.assert_allclose(extended, full_mask, rtol=1e-5, atol=1e-6)
