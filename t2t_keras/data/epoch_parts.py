"""Parts of passes over corpora that are too large to plan at once.

With n parts, epochs 0 to n - 1 are the first pass. Each pass assigns blocks of neighbouring pairs to parts anew.
"""

import numpy as np

# Planning a part takes some seconds and about a gigabyte.
PART_PAIRS = 1 << 24
_BLOCK_PAIRS = 1 << 12
# Start of the random counter, far from the draws of `plan_epoch`, which can have the same key.
_COUNTER = 1 << 192


def num_parts(pairs: int, part_pairs: int = PART_PAIRS) -> int:
    """The number of parts in which a pass over `pairs` pairs is planned."""
    return -(-pairs // part_pairs)


def part_rows(pairs: int, parts: int, seed: int, epoch: int, block_pairs: int = _BLOCK_PAIRS) -> np.ndarray:
    """The rows of the corpus in one part of a pass, rising, int64 [about pairs / parts].

    The parts of a pass contain every row exactly once. `epoch` counts all earlier parts, including those of earlier
    passes; blocks of `block_pairs` neighbouring rows stay together.
    """
    whole_passes, part = divmod(epoch, parts)
    random = np.random.Philox(key=(seed % 2**64) + (whole_passes << 64), counter=_COUNTER)
    blocks = np.argsort(random.random_raw(-(-pairs // block_pairs)), kind="stable")
    part_blocks = np.sort(np.array_split(blocks, parts)[part])
    rows = (part_blocks[:, np.newaxis] * block_pairs + np.arange(block_pairs)).ravel()  # --> [rows of the part]
    return rows[rows < pairs]
