"""Measures the matrix-product throughput of a machine, and stores it in a study's folder."""

import math
import pathlib
import re
import time
from collections.abc import Callable

from t2t_keras.machine.files import read_cache, write_json

# Minimum time of a product in seconds: longer than the overhead of a call, but shorter than most bursts of other load.
_LONG_ENOUGH = 0.01
_LARGEST = 16384
# The fastest of at least this many products in at least this many seconds counts, because other load slows some down.
_TRIES = 5
_SECONDS = 1.0


def matrix_rate(multiply: Callable[[int], float]) -> dict[str, float]:
    """Measures the throughput of products of square float32 matrices.

    Args:
        multiply: multiplies two matrices with the given number of rows, and returns the time in seconds.

    Returns:
        "flops_per_second": throughput of the fastest product.
        "matrix_rows": number of rows, the first power of two from 512 whose product takes at least 10 ms (at most
            16,384).
    """
    size, seconds = 256, 0.0
    while seconds < _LONG_ENOUGH and size < _LARGEST:
        size *= 2
        seconds = multiply(size)
    start, tries = time.monotonic(), 0
    while tries < _TRIES or time.monotonic() < start + _SECONDS:
        seconds, tries = min(seconds, multiply(size)), tries + 1
    return {"flops_per_second": 2 * size**3 / seconds, "matrix_rows": size}


def stored_rate(study_dir: pathlib.Path, machine: str) -> float | None:
    """Returns the operations per second of a machine stored in a study's folder; None if there are none."""
    rate = read_cache(_path(study_dir, machine)).get("flops_per_second")
    return rate if isinstance(rate, float) and math.isfinite(rate) else None


def update_stored_rate(study_dir: pathlib.Path, machine: str, multiply: Callable[[int], float]) -> float:
    """Returns the highest number of operations per second that a study has measured on a machine.

    The rate is measured at every call, because earlier measurements may have been slowed by other load. The highest one
    is stored in the study's folder.
    """
    old, new = stored_rate(study_dir, machine), matrix_rate(multiply)
    if old is not None and old >= new["flops_per_second"]:
        return old
    path = _path(study_dir, machine)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"machine": machine, **new})
    return new["flops_per_second"]


def _path(study_dir: pathlib.Path, machine: str) -> pathlib.Path:
    return study_dir / "machines" / f"{re.sub(r'[^a-z0-9]+', '_', machine.lower()).strip('_')}.json"
