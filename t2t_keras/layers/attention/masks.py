"""Attention masks: bool, True where a query may attend to a key."""

import keras
from keras import ops

from t2t_keras.tensor import Tensor


def padding_mask(token_ids: Tensor) -> Tensor:
    """Hides padding (id 0) from all queries: int [batch, key_len] --> bool [batch, 1, 1, key_len], True for tokens."""
    return ops.expand_dims(ops.not_equal(token_ids, 0), (1, 2))  # --> [batch, 1, 1, key_len]


def with_heads(mask: Tensor | None) -> Tensor | None:
    """Adds an axis for the heads to a mask with three axes, the form that Keras's own `MultiHeadAttention` takes.

    [batch, query_len, key_len] --> [batch, 1, query_len, key_len]. Other masks and None are returned unchanged. Raises
    as `check_mask`.
    """
    if mask is None:
        return None
    check_mask(mask)
    return ops.expand_dims(mask, 1) if len(mask.shape) == 3 else mask


def check_mask(mask: Tensor) -> None:
    """Raises a ValueError if a mask is float, which is ambiguous: it may be added to scores, or hold ones and zeros."""
    if "float" in (dtype := keras.backend.standardize_dtype(mask.dtype)):
        advice = "`mask >= 0` converts numbers that are added to scores, `mask > 0` converts ones and zeros"
        raise ValueError(f"an attention mask must be bool, True = may attend, got {dtype}: {advice}")


def token_rows(token_ids: Tensor) -> Tensor:
    """Indices of tokens in a flattened batch: int [batch, length], padded with 0 --> int32 [tokens], ascending.

    Position-wise layers use them to skip padding. The number of tokens is known only when the graph runs, so XLA cannot
    compile this.
    """
    return ops.cast(ops.nonzero(ops.reshape(token_ids, (-1,)))[0], "int32")  # --> [tokens]


def causal_mask(length: Tensor) -> Tensor:
    """Hides later positions (section 3.2.3): bool [1, 1, length, length], True where key position <= query position."""
    positions = _positions(length)
    is_visible = ops.less_equal(positions[None, :], positions[:, None])  # --> [length, length]
    return ops.expand_dims(is_visible, (0, 1))  # --> [1, 1, length, length]


def window_mask(length: Tensor, window: tuple[int, int]) -> Tensor:
    """Hides positions outside a window (section 4, "restricted"): bool [1, 1, length, length].

    True where the key's position is at most `window[0]` before and at most `window[1]` after the query's position.
    """
    positions = _positions(length)
    distance = positions[None, :] - positions[:, None]  # --> [length, length]
    is_inside = (distance >= -window[0]) & (distance <= window[1])
    return ops.expand_dims(is_inside, (0, 1))  # --> [1, 1, length, length]


def _positions(length: Tensor | None) -> Tensor:
    if length is None:
        raise ValueError("`length` is None, as of a symbolic input; make the mask within a layer's call, or a `Lambda`")
    return ops.arange(length, dtype="int32")
