"""Equation 1: how queries weigh the values of keys."""

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
        mask: bool, broadcastable to [..., query_len, key_len], True = may attend;
            None lets every query attend to every key.
        bias: what the mask stands for, of `mask_bias`, where it serves many calls; None means that of the mask.
        scale: what the products are multiplied by; None means 1 / sqrt(d_key). Queries whose projection was scaled
            before need 1.
        dropout: what the weights go through before the values are weighed.

    Returns:
        A pair: float [..., query_len, d_value], and the weights before dropout, float
        [..., query_len, key_len]. A query that may attend to nothing attends to
        everything equally; no NaN comes of it.
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
    """What is added to attention scores to hide keys: one pass over the scores, where selecting would be two.

    Args:
        mask: bool, True = may attend; None hides nothing.
        dtype: of the scores.

    Returns:
        0 where the mask is True and a large negative number elsewhere, of the mask's shape; None for None.
    """
    if mask is None:
        return None
    return ops.cast(ops.where(mask, 0.0, -3e4 if dtype == "float16" else -1e9), dtype)
