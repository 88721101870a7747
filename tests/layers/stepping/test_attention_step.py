"""Attention as the steps of a search compute it, against the call."""

import numpy as np
import pytest
from keras import ops

from t2t_keras.layers import MultiHeadAttention
from t2t_keras.layers.attention.scores import mask_bias
from t2t_keras.layers.stepping.attention_step import CrossAttentionStep, projected_memories
from t2t_keras.layers.stepping.projections import Projections
from tests.layers import numpy_oracle


def attention_to_memory(layer, query, memory, mask):
    """As the steps of a search attend."""
    bias = mask_bias(ops.convert_to_tensor(mask), "float32")
    batch, query_len, d_model = query.shape
    rows = ops.reshape(ops.convert_to_tensor(query), (-1, d_model))
    step = CrossAttentionStep(layer, Projections("float32"), query_len)
    attended, _ = step(rows, *projected_memories([step], ops.convert_to_tensor(memory)), bias)
    return ops.reshape(attended, (batch, query_len, d_model))


def test_projected_memory_has_heads_first(rng):
    layer = MultiHeadAttention(2, 4, 3)
    layer.build((None, None, 8), (None, None, 8))
    memory = ops.convert_to_tensor(rng.standard_normal((2, 5, 8)), "float32")
    ((keys, values),) = projected_memories([CrossAttentionStep(layer, Projections("float32"), 1)], memory)
    assert tuple(keys.shape) == (2, 2, 5, 4)
    assert tuple(values.shape) == (2, 2, 5, 3)


@pytest.mark.parametrize("score", ["scaled_dot", "dot", "additive"])
def test_attending_to_projected_memory_equals_the_call(rng, score):
    query, memory = (ops.convert_to_tensor(rng.standard_normal((2, n, 8)), "float32") for n in (4, 5))
    layer = MultiHeadAttention(2, 4, score=score)
    mask = np.array([True, True, True, False, True])
    outputs = layer(query, memory, mask)
    np.testing.assert_allclose(attention_to_memory(layer, query, memory, mask), outputs, atol=1e-6)


@pytest.mark.parametrize(
    "shape", [(5,), (4, 5), (2, 4, 5), (2, 1, 5), (1, 4, 5), (2, 3, 4, 5), (2, 1, 1, 5), (1, 3, 4, 1)]
)
def test_a_bias_of_any_shape_that_broadcasts(rng, shape):
    query, memory = (rng.standard_normal((2, length, 8)).astype("float32") for length in (4, 5))
    mask = rng.random(shape) < 0.6
    layer = MultiHeadAttention(3, 4)
    layer.build((None, None, 8), (None, None, 8))
    numpy_oracle.randomise(layer, rng)
    found = attention_to_memory(layer, query, memory, mask[:, None] if mask.ndim == 3 else mask)
    np.testing.assert_allclose(found, layer(query, memory, mask), atol=2e-5)
