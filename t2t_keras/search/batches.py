"""Sentences of different lengths in batches, with little padding."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from t2t_keras.symbols import PAD_ID

# Called after each batch with how much is done, and how much there is.
Progress = Callable[[int, int], None]


def length_batches(lengths: Sequence[int], tokens_per_batch: int) -> Iterator[list[int]]:
    """Groups items of similar length, longest first.

    Args:
        lengths: of each item.
        tokens_per_batch: most that a batch's items times the longest of them may be; one item always fits.

    Yields:
        The indices of a batch's items.
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
    """Token ids of different lengths as one int32 array [rows, longest], filled up with padding."""
    array = np.full((len(rows), max(map(len, rows), default=0)), PAD_ID, np.int32)
    for index, row in enumerate(rows):
        array[index, : len(row)] = row
    return array
