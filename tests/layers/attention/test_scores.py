"""Dot-product and additive scores: the formulas, blocks of any size, and gradients."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.layers import additive_attention, scaled_dot_product_attention
from t2t_keras.layers.attention import scores
from t2t_keras.layers.attention.scores import additive_scores, dot_product_attention

SHAPES = {"queries": (3, 2, 7, 4), "keys": (3, 2, 5, 4), "vector": (3, 1, 4)}
ANY = {"queries": (3, None, None, 4), "keys": (3, None, None, 4), "vector": (3, 1, 4)}


@pytest.fixture
def arguments(rng) -> list[tf.Tensor]:
    return [tf.constant(rng.standard_normal(shape), tf.float32) for shape in SHAPES.values()]


def scores_in_numpy(queries, keys, vector) -> np.ndarray:
    queries, keys, vector = (np.asarray(x, np.float64) for x in (queries, keys, vector))
    result = np.empty((*queries.shape[:3], keys.shape[2]))
    for head, sentence, query, key in np.ndindex(result.shape):
        hidden = np.tanh(queries[head, sentence, query] + keys[head, sentence, key])
        result[head, sentence, query, key] = vector[head, 0] @ hidden
    return result


def gradients_in_numpy(queries, keys, vector, upstream) -> list[np.ndarray]:
    queries, keys, vector, upstream = (np.asarray(x, np.float64) for x in (queries, keys, vector, upstream))
    hidden = np.tanh(queries[:, :, :, None] + keys[:, :, None])
    inner = upstream[..., None] * vector[:, :, None, None] * (1 - hidden**2)
    return [inner.sum(3), inner.sum(2), (upstream[..., None] * hidden).sum((1, 2, 3))[:, None]]


def test_the_mask_bias_is_finite_in_half_precision_of_any_backend(monkeypatch):
    class Half:
        def __str__(self):
            return "torch.float16"

    monkeypatch.setattr(scores.ops, "cast", lambda values, dtype: values)
    for dtype in ("float16", np.dtype("float16"), tf.float16, Half()):
        assert np.min(scores.mask_bias(np.array([True, False]), dtype)) == -3e4


def test_the_scaled_product_divides_the_queries_by_the_root_of_their_width(rng):
    queries, keys, values = (tf.constant(rng.standard_normal((2, 5, 6)), tf.float32) for _ in range(3))
    expected = dot_product_attention(queries / 6**0.5, keys, values)
    for actual, expected_part in zip(scaled_dot_product_attention(queries, keys, values), expected, strict=True):
        np.testing.assert_array_equal(actual, expected_part)


def test_additive_attention_weighs_values_by_the_softmax_of_its_scores(arguments, rng):
    values = tf.constant(rng.standard_normal((3, 2, 5, 6)), tf.float32)
    mask = rng.random((7, 5)) < 0.5
    outputs, weights = additive_attention(*arguments[:2], values, mask, vector=arguments[2])
    expected = np.exp(scores_in_numpy(*arguments)) * mask
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    np.testing.assert_allclose(outputs, expected @ values.numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("max_hidden", "block", "kind"),
    [(1, 1, "eager"), (300, 2, "eager"), (800, 4, "eager"), (840, 7, "eager"), (300, 2, "graph"), (300, 2, "xla")],
)
def test_scores_and_gradients_equal_the_formula_in_blocks_of_any_size(
    monkeypatch, arguments, rng, max_hidden, block, kind
):
    """The hidden layer of a query has 120 elements; at most `max_hidden` exist at a time."""
    monkeypatch.setattr(scores, "_MAX_HIDDEN", max_hidden)
    block_lengths, block_scores = set(), scores._block_scores

    def record_and_score(queries, *rest):
        block_lengths.add(queries.shape[2])
        return block_scores(queries, *rest)

    monkeypatch.setattr(scores, "_block_scores", record_and_score)
    upstream = tf.constant(rng.standard_normal((3, 2, 7, 5)), tf.float32)

    def scores_and_gradients(*arguments):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            actual = additive_scores(*arguments)
        return actual, tape.gradient(actual, arguments, upstream)

    if kind == "graph":
        signature = [tf.TensorSpec(shape, tf.float32) for shape in ANY.values()]
        scores_and_gradients = tf.function(scores_and_gradients, input_signature=signature)
    if kind == "xla":
        scores_and_gradients = tf.function(scores_and_gradients, jit_compile=True)
    actual, gradients = scores_and_gradients(*arguments)
    assert tuple(actual.shape) == (3, 2, 7, 5)
    assert block_lengths == ({None} if kind == "graph" else {block})
    np.testing.assert_allclose(actual, scores_in_numpy(*arguments), atol=1e-5)
    for gradient, expected in zip(gradients, gradients_in_numpy(*arguments, upstream), strict=True):
        np.testing.assert_allclose(gradient, expected, atol=1e-4)
