"""Attention masks: bool, True where a query may attend to a key."""

from typing import Any

from keras import ops

Tensor = Any


def padding_mask(token_ids: Tensor) -> Tensor:
    """Hides padding from every query.

    Args:
        token_ids: int [batch, key_len]; id 0 is padding.

    Returns:
        bool [batch, 1, 1, key_len], True on tokens.
    """
    return ops.not_equal(token_ids, 0)[:, None, None, :]  # --> [batch, 1, 1, key_len]


def token_rows(token_ids: Tensor) -> Tensor:
    """Where the tokens are among the positions of a batch laid out one after the other.

    Position-wise layers need no other rows. How many there are is known only
    when the graph runs, so this is not for XLA.

    Args:
        token_ids: int [batch, length]; id 0 is padding.

    Returns:
        int32 [tokens], ascending indices into batch * length.
    """
    return ops.cast(ops.nonzero(ops.reshape(token_ids, (-1,)))[0], "int32")  # --> [tokens]


def causal_mask(length: Tensor) -> Tensor:
    """Hides later positions: "preventing leftward information flow" (section 3.2.3).

    Args:
        length: target_len, an int or a scalar int tensor.

    Returns:
        bool [1, 1, length, length], True where key position <= query position.
    """
    positions = ops.arange(length)
    return ops.less_equal(positions[None, :], positions[:, None])[None, None]  # --> [1, 1, length, length]
