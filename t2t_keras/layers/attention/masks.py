"""Attention masks: bool, True where a query may attend to a key."""

from keras import ops

from t2t_keras.tensor import Tensor


def padding_mask(token_ids: Tensor) -> Tensor:
    """Hides padding (id 0) from every query: int [batch, key_len] --> bool [batch, 1, 1, key_len], True on tokens."""
    return ops.not_equal(token_ids, 0)[:, None, None, :]  # --> [batch, 1, 1, key_len]


def token_rows(token_ids: Tensor) -> Tensor:
    """Indices of tokens in a flattened batch: int [batch, length], padded with 0 --> int32 [tokens], ascending.

    Position-wise layers can skip all other rows. The number of tokens is known only when the graph runs, so XLA cannot
    compile this.
    """
    return ops.cast(ops.nonzero(ops.reshape(token_ids, (-1,)))[0], "int32")  # --> [tokens]


def causal_mask(length: Tensor) -> Tensor:
    """Hides later positions (section 3.2.3): bool [1, 1, length, length], True where key position <= query position."""
    positions = ops.arange(length)
    return ops.less_equal(positions[None, :], positions[:, None])[None, None]  # --> [1, 1, length, length]


def window_mask(length: Tensor, window: tuple[int, int]) -> Tensor:
    """Hides positions outside of a window (section 4, "restricted"): bool [1, 1, length, length], True where the key's
    position is at most `window[0]` before and at most `window[1]` after the query's.
    """
    positions = ops.arange(length)
    distance = positions[None, :] - positions[:, None]
    return ((distance >= -window[0]) & (distance <= window[1]))[None, None]  # --> [1, 1, length, length]
