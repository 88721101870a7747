"""Attention with each kind of score: scaled dot product (equation 1), dot product and additive (section 3.2.1)."""

import math
from collections.abc import Callable

import keras
from keras import ops

from t2t_keras import kernels
from t2t_keras.kernels.blocks import ceil_div, larger, merge_blocks, split_blocks
from t2t_keras.layers.attention.masks import check_mask
from t2t_keras.tensor import Tensor

# Maximum number of elements of the additive score's hidden layer in memory at once.
_MAX_HIDDEN = 2**23


def scaled_dot_product_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    *,
    dropout: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention(Q, K, V) = softmax(Q K^T / sqrt(d_key)) V (section 3.2.1, equation 1).

    Args:
        queries: float [..., query_len, d_key].
        keys: float [..., key_len, d_key].
        values: float [..., key_len, d_value].
        mask: bool, broadcastable to [..., query_len, key_len], True = may attend; None hides nothing.
        dropout: applied to the weights before they multiply the values.

    Returns:
        float [..., query_len, d_value], and the weights before dropout, float [..., query_len, key_len]. For a fully
        masked query, the weights are equal and not NaN; in float16, they are equal only if the scores are small.
    """
    d_key = keys.shape[-1]
    scaled_queries = queries / d_key**0.5  # "Scale" of Figure 2
    return dot_product_attention(scaled_queries, keys, values, mask, dropout=dropout)


def dot_product_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    *,
    dropout: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """softmax(Q K^T) V, the unscaled form (section 3.2.1).

    Arguments and results are as in `scaled_dot_product_attention`.
    """
    scores = kernels.scores(queries, keys)  # "MatMul" of Figure 2, --> [..., query_len, key_len]
    return weighted_values(scores, values, mask, dropout=dropout)


def additive_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    *,
    vector: Tensor,
    dropout: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """softmax(v . tanh(q + k)) V, additive attention (section 3.2.1): a hidden layer instead of a dot product.

    This is the score of Bahdanau et al. (2015), v . tanh(W q + U k), where the projections of multi-head attention take
    the place of W and U. `vector` is v, float [..., d_key], broadcastable to the queries without their query_len axis.
    Other arguments and the results are as in `scaled_dot_product_attention`.
    """
    return weighted_values(additive_scores(queries, keys, vector), values, mask, dropout=dropout)


def additive_scores(queries: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    """v . tanh(q + k) for each query and key: float [..., query_len, key_len].

    To save memory, the hidden layer, [..., query_len, key_len, d_key], is computed for a few queries at a time, and
    again in the backward pass. Arguments are as in `additive_attention`.
    """
    vector = ops.cast(vector, queries.dtype)
    query_len, keys_size = kernels.shape(queries)[-2], math.prod(kernels.shape(keys))
    count = ceil_div(query_len, larger(_MAX_HIDDEN // larger(keys_size, 1), 1))
    score_block = keras.remat(_block_scores)
    if isinstance(count, int) and count <= 1:
        return score_block(queries, keys, vector)
    blocks = split_blocks(queries, count, ceil_div(query_len, larger(count, 1)))  # --> [..., blocks, block_len, d_key]
    # --> [blocks, ..., block_len, key_len]
    scores = ops.map(lambda block: score_block(block, keys, vector), ops.moveaxis(blocks, -3, 0))
    return merge_blocks(ops.moveaxis(scores, 0, -3), query_len)  # --> [..., query_len, key_len]


def _block_scores(queries: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    hidden = ops.tanh(queries[..., :, None, :] + keys[..., None, :, :])  # --> [..., block_len, key_len, d_key]
    return ops.matmul(hidden, vector[..., None, :, None])[..., 0]  # --> [..., block_len, key_len]


def weighted_values(
    scores: Tensor, values: Tensor, mask: Tensor | None, *, dropout: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """softmax(scores) V, where scores are float [..., query_len, key_len]; see `scaled_dot_product_attention`."""
    bias = mask_bias(mask, scores.dtype)
    scores = scores if bias is None else scores + bias  # "Mask (opt.)"
    weights = kernels.softmax(scores)  # "SoftMax"
    factors = weights if dropout is None else dropout(weights)
    return kernels.matmul(factors, values), weights  # "MatMul"; --> [..., query_len, d_value]


def mask_bias(mask: Tensor | None, dtype: str) -> Tensor | None:
    """Converts a bool mask, True = may attend, to a bias on scores: 0 or a large negative number; None for None.

    Adding a bias takes one pass over the scores; selecting with the mask would take two.
    """
    if mask is None:
        return None
    mask = ops.convert_to_tensor(mask)
    check_mask(mask)
    lowest = -3e4 if keras.backend.standardize_dtype(dtype) == "float16" else -1e30
    return ops.where(mask, ops.cast(0.0, dtype), ops.cast(lowest, dtype))
