"""Which pairs occurred before, among more pairs than a Python set could hold."""

from collections.abc import Sequence

import numpy as np

# Keys that are sorted at once; with their rows and what sorting takes, some gigabytes.
_SORTED_KEYS = 1 << 27
_KEY_BITS = 64


def repeated_rows(shards: Sequence[np.ndarray], sorted_keys: int = _SORTED_KEYS) -> list[np.ndarray]:
    """The rows whose key occurred before, in an earlier shard or row.

    Args:
        shards: keys uint64 [rows] of each, which may be memory-mapped.
        sorted_keys: about how many keys are in memory at once; beyond, shards are read several times.

    Returns:
        For each shard its rows that repeat an earlier one, int64, rising.
    """
    starts = np.cumsum([0, *map(len, shards)])  # --> [shards + 1]
    bits = max(0, int(starts[-1] - 1) // sorted_keys).bit_length()
    repeated = np.sort(np.concatenate([_repeated_in_part(shards, starts, bits, part) for part in range(1 << bits)]))
    bounds = np.searchsorted(repeated, starts)
    return [repeated[bounds[i] : bounds[i + 1]] - starts[i] for i in range(len(shards))]


def _repeated_in_part(shards: Sequence[np.ndarray], starts: np.ndarray, bits: int, part: int) -> np.ndarray:
    """Of the keys whose first bits are `part`: rows of all shards counted through that repeat an earlier one."""
    keys, rows = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    for start, shard in zip(starts, shards, strict=False):
        is_in_part = shard >> np.uint64(_KEY_BITS - bits) == part if bits else np.ones(len(shard), bool)
        keys.append(shard[is_in_part])
        rows.append(start + np.flatnonzero(is_in_part))
    key, row = np.concatenate(keys), np.concatenate(rows)
    order = np.argsort(key, kind="stable")  # of equal keys the earliest stays first
    key = key[order]
    return row[order[1:][key[1:] == key[:-1]]]
