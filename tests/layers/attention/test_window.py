"""Self-attention within a window, computed in blocks, against attention to all positions with a mask."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from t2t_keras.layers import MultiHeadAttention, causal_mask, padding_mask, window_mask
from t2t_keras.layers.attention import window as window_module
from tests.layers import numpy_oracle
from tests.layers.collected import call_with_weights

BLOCK = 4
LENGTHS = (0, 1, 3, 4, 5, 8, 9, 21)  # less than a block, whole blocks, and lengths between


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(window_module, "BLOCK", BLOCK)


def make_layer(rng, window, **settings) -> MultiHeadAttention:
    layer = MultiHeadAttention(2, 4, window=window, **settings)
    layer.build((None, None, 8), (None, None, 8))
    numpy_oracle.randomise(layer, rng)
    return layer


def make_tokens(rng, length: int) -> np.ndarray:
    """Returns three sentences of different lengths, of which one fills the batch."""
    lengths = np.array([length, (length + 1) // 2, min(length, 1)])
    return np.where(np.arange(length) < lengths[:, None], 5, 0).astype("int32")


@pytest.mark.parametrize(
    ("window", "visible"), [((1, 1), [2, 3, 4]), ((2, 0), [1, 2, 3]), ((0, 0), [3]), ((9, 9), range(6))]
)
def test_a_window_mask_shows_neighbouring_positions(window, visible):
    mask = np.array(window_mask(6, window))
    assert mask.shape == (1, 1, 6, 6)
    assert np.flatnonzero(mask[0, 0, 3]).tolist() == list(visible)


def test_a_window_of_all_earlier_positions_is_the_causal_mask():
    np.testing.assert_array_equal(window_mask(5, (4, 0)), causal_mask(5))


@pytest.mark.parametrize("score", ["scaled_dot", "additive"])
@pytest.mark.parametrize("window", [(1, 1), (2, 0)])
def test_attention_within_a_window_equals_masked_attention(rng, small_blocks, window, score):
    x = rng.standard_normal((2, 9, 8))
    layer = make_layer(rng, window, score=score)
    mask = np.broadcast_to(np.array(window_mask(9, window))[0], (2, 9, 9))
    x32 = ops.convert_to_tensor(x, "float32")
    expected = numpy_oracle.multi_head_attention(layer, x, x, mask)
    np.testing.assert_allclose(layer(x32, x32), expected, atol=2e-5)
    outputs, weights = call_with_weights(layer, x32, x32)
    np.testing.assert_allclose(outputs, expected, atol=2e-5)
    np.testing.assert_allclose(weights, numpy_oracle.attention_weights(layer, x, x, mask), atol=1e-6)


@pytest.mark.parametrize("causal", [False, True], ids=["both_sides", "causal"])
@pytest.mark.parametrize("length", LENGTHS)
def test_blocks_equal_masked_attention(rng, small_blocks, length, causal):
    """Tests each reach from one position to more than the length."""
    for reach in sorted({1, 2, 3, 4, 5, length + 1, length + 2}):
        layer = make_layer(rng, (reach, 0 if causal else reach))
        x, tokens = ops.convert_to_tensor(rng.standard_normal((3, length, 8)), "float32"), make_tokens(rng, length)
        outputs, expected = layer(x, x, padding_mask(tokens)), call_with_weights(layer, x, x, padding_mask(tokens))[0]
        assert tuple(outputs.shape) == (3, length, 8)
        # The outputs at padding are arbitrary but must be finite.
        assert np.all(np.isfinite(outputs))
        np.testing.assert_allclose(np.array(outputs)[tokens != 0], np.array(expected)[tokens != 0], atol=1e-5)


@pytest.mark.parametrize("window", [(1, 1), (6, 0), (3, 5)])
def test_gradients_of_blocks_equal_those_of_masked_attention(rng, small_blocks, window):
    """One graph serves all lengths."""
    layer = make_layer(rng, window)
    signature = [tf.TensorSpec([None, None, 8]), tf.TensorSpec([None, None], tf.int32)]

    @tf.function(input_signature=signature)
    def gradients(x, tokens):
        results = []
        for attend in (layer, lambda *arguments: call_with_weights(layer, *arguments)[0]):
            with tf.GradientTape() as tape:
                tape.watch(x)
                outputs = tf.sin(attend(x, x, padding_mask(tokens))) * tf.cast(tokens != 0, tf.float32)[..., None]
            results.append(tape.gradient(outputs, [x, *layer.trainable_variables]))
        return results

    for length in LENGTHS:
        x = tf.constant(rng.standard_normal((3, length, 8)), tf.float32)
        for actual, expected in zip(*gradients(x, make_tokens(rng, length)), strict=True):
            np.testing.assert_allclose(actual, expected, atol=5e-5)


@pytest.mark.parametrize("shape", [(9,), (1, 9), (3, 1, 9), (1, 2, 1, 9), (3, 1, 1, 9), (3, 2, 1, 1)])
def test_a_mask_of_keys_of_any_shape_that_broadcasts(rng, small_blocks, shape):
    x = ops.convert_to_tensor(rng.standard_normal((3, 9, 8)), "float32")
    layer, mask = make_layer(rng, (2, 1)), rng.random(shape) < 0.7
    outputs, expected = layer(x, x, mask), call_with_weights(layer, x, x, mask)[0]
    mask = mask[:, None] if mask.ndim == 3 else mask
    is_visible = np.broadcast_to(mask, (3, 2, 1, 9)) & np.array(window_mask(9, (2, 1)))
    visible = is_visible.any(-1).all(1)  # visible to all heads
    assert visible.any() or len(shape) == 4
    np.testing.assert_allclose(np.array(outputs)[visible], np.array(expected)[visible], atol=1e-5)


def test_attention_dropout_in_blocks_depends_on_the_seed(rng, small_blocks):
    x = ops.convert_to_tensor(rng.standard_normal((2, 9, 8)), "float32")
    layer = make_layer(rng, (2, 2), dropout_rate=0.5)
    seeds = [ops.convert_to_tensor(words, "int32") for words in ([1, 2], [1, 3])]
    undropped, dropped, other_seed = (
        np.array(layer(x, x, seed=seed, training=training))
        for seed, training in ((seeds[0], False), (seeds[0], True), (seeds[1], True))
    )
    np.testing.assert_array_equal(dropped, layer(x, x, seed=seeds[0], training=True))
    assert min(np.abs(dropped - undropped).max(), np.abs(dropped - other_seed).max()) > 1e-3


def test_no_tensor_in_the_graph_grows_quadratically_with_the_length(rng):
    """In the forward and backward pass, doubling the length at most doubles the largest tensor."""

    def largest(length: int) -> int:
        layer, x = MultiHeadAttention(2, 4, window=(16, 16)), tf.TensorSpec([1, length, 8])

        @tf.function(input_signature=[x])
        def gradient(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                total = tf.reduce_sum(layer(x, x, tf.ones([1, 1, 1, length], tf.bool)) ** 2)
            return tape.gradient(total, x)

        operations = gradient.get_concrete_function().graph.get_operations()
        return max(output.shape.num_elements() for operation in operations for output in operation.outputs)

    assert largest(1024) <= 2 * largest(512) < 2 * 512 * 512


def test_invalid_arguments_with_a_window_are_rejected(rng):
    x = ops.zeros((2, 5, 8))
    layer = MultiHeadAttention(2, 4, window=(1, 1))
    with_weights = functools.partial(layer, return_attention_scores=True)
    for call in (layer, with_weights, functools.partial(call_with_weights, layer)):
        with pytest.raises(
            ValueError, match=r"`attention_mask` must be the same for all queries.* got the shape \(1, 1, 5, 5\)"
        ):
            call(x, x, causal_mask(5))
        with pytest.raises(ValueError, match="`window` is for self-attention; got lengths 5 and 4"):
            call(x, x[:, :4])
    for window in ((1,), (-1, 0), (2.0, 2.0)):
        with pytest.raises(ValueError, match="`window` must be two whole numbers of at least 0, got"):
            MultiHeadAttention(2, 4, window=window)
