"""Scaled dot-product attention (equation 1)."""

from collections.abc import Callable
from typing import Any

from keras import ops

from t2t_keras.layers import kernels

Tensor = Any


def scaled_dot_product_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention(Q, K, V) = softmax(Q K^T / sqrt(d_key)) V (section 3.2.1, equation 1).

    Args:
        queries: float [..., query_len, d_key].
        keys: float [..., key_len, d_key].
        values: float [..., key_len, d_value].
        mask: bool, broadcastable to [..., query_len, key_len], True = may attend; None hides nothing.
        bias: a `mask_bias` to use instead of `mask`, where one serves many calls.
        scale: factor on Q K^T; None means 1 / sqrt(d_key). Pass 1 for queries that are already scaled.
        dropout: applied to the weights before they multiply the values.

    Returns:
        float [..., query_len, d_value], and the weights before dropout, float [..., query_len, key_len]. A query that
        may attend to nothing weighs all keys equally, without NaN.
    """
    if scale is None:
        scale = keys.shape[-1] ** -0.5
    if scale != 1:
        queries = queries * ops.cast(scale, queries.dtype)
    if bias is None:
        bias = mask_bias(mask, queries.dtype)
    scores = kernels.scores(queries, keys)  # --> [..., query_len, key_len]
    weights = kernels.softmax(scores if bias is None else scores + bias)
    weighed_by = weights if dropout is None else dropout(weights)
    return ops.matmul(weighed_by, values), weights  # --> [..., query_len, d_value]


def mask_bias(mask: Tensor | None, dtype: str) -> Tensor | None:
    """Converts a bool mask, True = may attend, to a bias on attention scores: 0 or a large negative number; None for
    None. Adding a bias takes one pass over the scores; selecting by the mask would take two.
    """
    if mask is None:
        return None
    return ops.cast(ops.where(mask, 0.0, -3e4 if dtype == "float16" else -1e9), dtype)
