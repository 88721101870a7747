"""Selects the rows of an epoch: samples corpora by weight, and divides passes that are too large to plan at once.

With n parts, epochs 0 to n - 1 are the first pass. Each pass assigns blocks of consecutive pairs to parts anew.
"""

from collections.abc import Sequence

import numpy as np

from t2t_keras.errors import InputError

# Largest part. Planning it takes a few seconds and about 1 GB of memory.
PART_PAIRS = 1 << 24
# Largest weighted pass. All its rows are in memory, for a moment twice: 16 GB.
_MAX_WEIGHTED_PAIRS = 10**9
_BLOCK_PAIRS = 1 << 12
# First values of the random counters, far from those of `plan_epoch`, which may use the same key.
_COUNTER = 1 << 192
_WEIGHTED_COUNTER = 1 << 191


def weighted_rows(sizes: Sequence[int], weights: Sequence[float], seed: int, whole_passes: int) -> np.ndarray:
    """Returns the rows of a weighted pass over several consecutive corpora.

    With a weight of 2.5, each pair of a corpus occurs twice, and a random half of the pairs once more. The half is
    drawn anew for each pass. All passes have the same length.

    Args:
        sizes: number of pairs of each corpus.
        weights: weight of each corpus.
        seed: seed of the run.
        whole_passes: number of completed passes.

    Returns:
        The rows, int64 [rows], in increasing order.
    """
    random = np.random.Philox(key=(seed % 2**64) + (whole_passes << 64), counter=_WEIGHTED_COUNTER)
    rows, begin = [], 0
    for size, weight in zip(sizes, weights, strict=True):
        times = np.full(size, int(weight))
        if num_drawn := _num_repeats(size, weight):
            times[np.argsort(random.random_raw(size), kind="stable")[:num_drawn]] += 1
        rows.append(begin + np.repeat(np.arange(size), times))
        begin += size
    return np.concatenate(rows)


def pass_size(sizes: Sequence[int], weights: Sequence[float]) -> int:
    """Returns the number of `weighted_rows` in each pass; raises an `InputError` if there are none or too many."""
    pairs = sum(int(weight) * size + _num_repeats(size, weight) for size, weight in zip(sizes, weights, strict=True))
    if not 1 <= pairs <= _MAX_WEIGHTED_PAIRS:
        values = ",".join(f"{weight:g}" for weight in weights)
        raise InputError(
            f"train.corpus_weights={values} makes a pass of {pairs:,} pairs; it must have 1 to "
            f"{_MAX_WEIGHTED_PAIRS:,}; divide or multiply all weights by the same number"
        )
    return pairs


def _num_repeats(size: int, weight: float) -> int:
    """Returns the number of pairs of a corpus that are drawn to occur once more than the others."""
    return round((weight - int(weight)) * size)


def part_rows(pairs: int, parts: int, seed: int, epoch: int) -> np.ndarray:
    """Returns the corpus rows in one part of a pass.

    The parts of a pass contain every row exactly once. Blocks of `_BLOCK_PAIRS` consecutive rows stay together.

    Args:
        pairs: number of pairs in the corpus.
        parts: number of parts of a pass.
        seed: seed of the run.
        epoch: number of completed parts, including those of earlier passes.

    Returns:
        The rows, int64 [about pairs / parts], in increasing order.
    """
    whole_passes, part = divmod(epoch, parts)
    random = np.random.Philox(key=(seed % 2**64) + (whole_passes << 64), counter=_COUNTER)
    blocks = np.argsort(random.random_raw(-(-pairs // _BLOCK_PAIRS)), kind="stable")
    part_blocks = np.sort(np.array_split(blocks, parts)[part])
    rows = (part_blocks[:, np.newaxis] * _BLOCK_PAIRS + np.arange(_BLOCK_PAIRS)).ravel()  # --> [rows of the part]
    return rows[rows < pairs]
