"""Finds repeated pairs among more pairs than a Python set could hold."""

from collections.abc import Callable, Sequence

import numpy as np

# Keys sorted at once; with their rows and the memory of sorting, some gigabytes.
_SORTED_KEYS = 1 << 27
_KEY_BITS = 64

ReadKeys = Callable[[int], np.ndarray]


def repeated_rows(sizes: Sequence[int], read_keys: ReadKeys, sorted_keys: int = _SORTED_KEYS) -> list[np.ndarray]:
    """For each shard, the rows whose key occurred before in an earlier shard or row, int64, rising.

    Args:
        sizes: number of rows of each shard.
        read_keys: returns the keys of a shard by number, uint64 [rows]; called for one shard after another.
        sorted_keys: approximate number of keys in memory at once; with more keys, shards are read several times.
    """
    starts = np.cumsum([0, *sizes])  # --> [shards + 1]
    bits = max(0, int(starts[-1] - 1) // sorted_keys).bit_length()
    parts = [_repeated_in_part(starts, read_keys, bits, part) for part in range(1 << bits)]
    repeated = np.sort(np.concatenate(parts))
    bounds = np.searchsorted(repeated, starts)
    return [repeated[bounds[i] : bounds[i + 1]] - starts[i] for i in range(len(sizes))]


def _repeated_in_part(starts: np.ndarray, read_keys: ReadKeys, bits: int, part: int) -> np.ndarray:
    """Repeated rows, numbered across all shards, among the keys whose first `bits` bits are `part`."""
    keys, rows = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    for number, start in enumerate(starts[:-1]):
        shard = read_keys(number)
        is_in_part = shard >> np.uint64(_KEY_BITS - bits) == part if bits else np.ones(len(shard), bool)
        keys.append(shard[is_in_part])
        rows.append(start + np.flatnonzero(is_in_part))
    key, row = np.concatenate(keys), np.concatenate(rows)
    order = np.argsort(key, kind="stable")  # stable: the earliest of equal keys stays first
    key = key[order]
    return row[order[1:][key[1:] == key[:-1]]]
