"""Which rows an epoch has: more or fewer of some corpora, and parts of passes over what is too large to plan at once.

With n parts, epochs 0 to n - 1 are the first pass. Each pass assigns blocks of neighbouring pairs to parts anew.
"""

from collections.abc import Sequence

import numpy as np

from t2t_keras.errors import InputError

# Planning a part takes some seconds and about a gigabyte.
PART_PAIRS = 1 << 24
# Of a weighted pass, whose rows are all in memory at once, twice for a moment: 16 gigabytes.
_MOST_WEIGHTED_PAIRS = 10**9
_BLOCK_PAIRS = 1 << 12
# Starts of the random counter, far from the draws of `plan_epoch`, which can have the same key.
_COUNTER = 1 << 192
_WEIGHTED_COUNTER = 1 << 191


def weighted_rows(sizes: Sequence[int], weights: Sequence[float], seed: int, whole_passes: int) -> np.ndarray:
    """The rows of a pass over several corpora that lie one after the other, rising, int64 [rows].

    A corpus of weight 2.5 is there twice, and half of it, drawn anew for each pass, once more; passes are of one
    length. `sizes` are the pairs of each corpus, `whole_passes` counts the passes before.
    """
    random = np.random.Philox(key=(seed % 2**64) + (whole_passes << 64), counter=_WEIGHTED_COUNTER)
    rows, begin = [], 0
    for size, weight in zip(sizes, weights, strict=True):
        times = np.full(size, int(weight))
        if drawn := _drawn(size, weight):
            times[np.argsort(random.random_raw(size), kind="stable")[:drawn]] += 1
        rows.append(begin + np.repeat(np.arange(size), times))
        begin += size
    return np.concatenate(rows)


def pass_size(sizes: Sequence[int], weights: Sequence[float]) -> int:
    """The number of `weighted_rows`, which is that of every pass; an `InputError` if there are none or too many."""
    pairs = sum(int(weight) * size + _drawn(size, weight) for size, weight in zip(sizes, weights, strict=True))
    if not 1 <= pairs <= _MOST_WEIGHTED_PAIRS:
        values = ",".join(f"{weight:g}" for weight in weights)
        raise InputError(
            f"train.corpus_weights={values} makes an epoch of {pairs:,} pairs, and it must have 1 to "
            f"{_MOST_WEIGHTED_PAIRS:,}; divide or multiply all weights by the same number"
        )
    return pairs


def _drawn(size: int, weight: float) -> int:
    """The pairs of a corpus that occur once more than the others."""
    return round((weight - int(weight)) * size)


def part_rows(pairs: int, parts: int, seed: int, epoch: int) -> np.ndarray:
    """The rows of the corpus in one part of a pass, rising, int64 [about pairs / parts].

    The parts of a pass contain every row exactly once. `epoch` counts all earlier parts, including those of earlier
    passes; blocks of `_BLOCK_PAIRS` neighbouring rows stay together.
    """
    whole_passes, part = divmod(epoch, parts)
    random = np.random.Philox(key=(seed % 2**64) + (whole_passes << 64), counter=_COUNTER)
    blocks = np.argsort(random.random_raw(-(-pairs // _BLOCK_PAIRS)), kind="stable")
    part_blocks = np.sort(np.array_split(blocks, parts)[part])
    rows = (part_blocks[:, np.newaxis] * _BLOCK_PAIRS + np.arange(_BLOCK_PAIRS)).ravel()  # --> [rows of the part]
    return rows[rows < pairs]
