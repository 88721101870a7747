"""Passes over corpora so large that planning one at once would take too much time and memory.

Such a pass is planned in parts. Each is an epoch of its own to whoever counts
epochs: with n parts, epochs 0 to n - 1 are the first pass. Which pairs make a
part is drawn anew for each pass, in blocks of neighbouring pairs.
"""

import numpy as np

# A part takes some seconds to plan, and about a gigabyte.
PART_PAIRS = 1 << 24
_BLOCK_PAIRS = 1 << 12
# Far from where the plan's own draws begin.
_COUNTER = 1 << 192


def num_parts(pairs: int, part_pairs: int = PART_PAIRS) -> int:
    """The parts that a pass over so many pairs is planned in."""
    return -(-pairs // part_pairs)


def part_rows(pairs: int, parts: int, seed: int, epoch: int, block_pairs: int = _BLOCK_PAIRS) -> np.ndarray:
    """The rows of the corpus that make a part of a pass.

    Args:
        pairs: of the corpus.
        parts: of a pass.
        seed: of the run.
        epoch: parts made before, of this pass and those before it.
        block_pairs: neighbouring rows that stay together.

    Returns:
        Rows, rising, int64 [about pairs / parts]; those of all parts of a pass are every row once.
    """
    whole_passes, part = divmod(epoch, parts)
    random = np.random.Philox(key=(seed % 2**64) + (whole_passes << 64), counter=_COUNTER)
    blocks = np.argsort(random.random_raw(-(-pairs // block_pairs)), kind="stable")
    mine = np.sort(np.array_split(blocks, parts)[part])
    rows = (mine[:, np.newaxis] * block_pairs + np.arange(block_pairs)).ravel()  # --> [rows of the part]
    return rows[rows < pairs]
