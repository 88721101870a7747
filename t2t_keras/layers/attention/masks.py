"""Attention masks: bool, True where a query may attend to a key."""

import numbers
from typing import Any

import keras
from keras import ops

from t2t_keras.tensor import Tensor


def padding_mask(token_ids: Tensor) -> Tensor:
    """Hides padding (id 0) from all queries: int [batch, key_len] --> bool [batch, 1, 1, key_len], True for tokens."""
    check_token_ids(token_ids)
    return ops.expand_dims(ops.not_equal(token_ids, 0), (1, 2))  # --> [batch, 1, 1, key_len]


def token_rows(token_ids: Tensor) -> Tensor:
    """Indices of tokens in a flattened batch: int [batch, length], padded with 0 --> int32 [tokens], ascending.

    Position-wise layers use them to skip padding. The number of tokens is known only when the graph runs, so XLA cannot
    compile this.
    """
    check_token_ids(token_ids)
    return ops.cast(ops.nonzero(ops.reshape(token_ids, (-1,)))[0], "int32")  # --> [tokens]


def causal_mask(token_ids: Tensor | int) -> Tensor:
    """Hides later positions (section 3.2.3).

    Args:
        token_ids: int [batch, length], whose values do not matter; or the length, an int or an int scalar. A functional
            model of unknown length needs the ids.

    Returns:
        bool [1, 1, length, length], True where key position <= query position.
    """
    queries, keys = _positions(token_ids)
    return ops.less_equal(keys, queries)


def window_mask(token_ids: Tensor | int, window: tuple[int, int]) -> Tensor:
    """Hides positions outside a window (section 4, "restricted").

    Args:
        token_ids: the ids or the length, as for `causal_mask`.
        window: numbers of positions before and after each query that stay visible.

    Returns:
        bool [1, 1, length, length], True where the key's position is at most `window[0]` before and at most `window[1]`
        after the query's position.
    """
    check_window(window)
    queries, keys = _positions(token_ids)
    distance = keys - queries
    return ops.logical_and(distance >= -window[0], distance <= window[1])


def causal_past_mask(query_len: Tensor | int, key_len: Tensor | int, past_len: Tensor | int) -> Tensor:
    """Hides later positions from queries that follow a past.

    Returns:
        bool [1, 1, query_len, key_len], True where key position <= query position + past_len.
    """
    queries, keys = (ops.arange(length, dtype="int32") for length in (query_len, key_len))
    return ops.less_equal(ops.expand_dims(keys, (0, 1, 2)), ops.expand_dims(queries + past_len, (0, 1, 3)))


def combine_masks(*masks: Tensor | None) -> Tensor | None:
    """Combines attention masks: the result hides each position that any of them hides; None hides nothing."""
    combined = None
    for mask in masks:
        if mask is not None:
            combined = mask if combined is None else ops.logical_and(combined, mask)
    return combined


def add_heads_axis(mask: Tensor | None) -> Tensor | None:
    """Adds an axis for the heads to a mask with three axes, the form that Keras's own `MultiHeadAttention` takes.

    [batch, query_len, key_len] --> [batch, 1, query_len, key_len]. Other masks and None are returned unchanged. Raises
    as `check_mask`.
    """
    if mask is None:
        return None
    check_mask(mask)
    return ops.expand_dims(mask, 1) if len(mask.shape) == 3 else mask


def check_mask(mask: Tensor) -> None:
    """Raises a ValueError if a mask is not a tensor, or is float.

    A float mask is ambiguous: it may be added to scores, or hold ones and zeros.
    """
    if not hasattr(mask, "dtype"):
        raise ValueError(f"an attention mask must be a bool tensor or array, got a {type(mask).__name__}")
    if "float" in (dtype := keras.backend.standardize_dtype(mask.dtype)):
        advice = "`mask >= 0` converts numbers that are added to scores, `mask > 0` converts ones and zeros"
        others = "the third argument of `MultiHeadAttention` is the mask, not the values"
        raise ValueError(f"an attention mask must be bool, True = may attend, got {dtype}: {advice}; {others}")


def check_token_ids(token_ids: Any, name: str = "token_ids") -> None:
    """Raises a ValueError that names the argument if it is not a tensor or array of numbers with two axes."""
    shape = getattr(token_ids, "shape", None)
    if getattr(shape, "rank", 2) is None:  # TensorFlow knows the number of axes only when the graph runs
        return
    if shape is None or len(shape) != 2:
        actual = f"a {type(token_ids).__name__}" if shape is None else f"the shape {tuple(shape)}"
        raise ValueError(f"`{name}` must be token ids, int [batch, length], got {actual}")
    dtype = str(getattr(token_ids, "dtype", ""))
    if "bool" in dtype or not ("int" in dtype or "float" in dtype):
        raise ValueError(f"`{name}` must be token ids, int [batch, length], got {dtype}")


def check_window(window: Any) -> None:
    """Raises a ValueError if `window` is not a pair of whole numbers of at least 0."""
    is_pair = isinstance(window, tuple | list) and len(window) == 2
    if not is_pair or any(not isinstance(reach, numbers.Integral) or reach is True or reach < 0 for reach in window):
        raise ValueError(f"`window` must be two whole numbers of at least 0, got {window!r}")


def _positions(token_ids: Any) -> tuple[Tensor, Tensor]:
    """Returns the positions of queries, int32 [1, 1, length, 1], and of keys, int32 [1, 1, 1, length]."""
    if token_ids is None:
        raise ValueError("the length is None, as of a symbolic input; pass the token ids, int [batch, length], instead")
    if isinstance(token_ids, numbers.Integral) or getattr(token_ids, "shape", None) == ():
        positions = ops.expand_dims(ops.arange(token_ids, dtype="int32"), 0)  # --> [1, length]
    else:
        check_token_ids(token_ids)
        if isinstance(token_ids, keras.KerasTensor):  # may have an unknown length
            positions = ops.cumsum(ops.ones_like(token_ids[:1, :], dtype="int32"), axis=1)  # --> [1, length]
        else:
            positions = ops.expand_dims(ops.arange(ops.shape(token_ids)[1], dtype="int32"), 0)  # --> [1, length]
    return ops.expand_dims(positions, (1, 3)), ops.expand_dims(positions, (1, 2))
