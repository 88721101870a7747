"""Batches of sentences of similar length, with little padding."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from t2t_keras.symbols import PAD_ID

# Called after each batch with the number of items done and the total.
Progress = Callable[[int, int], None]


def length_batches(lengths: Sequence[int], tokens_per_batch: int) -> Iterator[list[int]]:
    """Yields batches of items of similar length as lists of their indices, longest items first.

    Args:
        lengths: length of each item.
        tokens_per_batch: limit on a batch's number of items times its longest length; one item is always allowed.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > tokens_per_batch:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def padded(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Pads rows of token ids with zeros at the end: int32 [rows, longest]."""
    array = np.full((len(rows), max(map(len, rows), default=0)), PAD_ID, np.int32)
    for index, row in enumerate(rows):
        array[index, : len(row)] = row
    return array
