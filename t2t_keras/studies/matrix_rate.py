"""The machine that a study runs on, and how many operations a second its products of matrices make."""

import math
import pathlib
import re
import time
from collections.abc import Callable

from t2t_keras.machine.files import read_note, write_json

_LONG_ENOUGH = 0.01  # seconds of a product: long beside the time of a call, short beside what else may run
_LARGEST = 16384
# Best of so many, and of as many as some seconds allow: something else may run for a while.
_TRIES = 5
_SECONDS = 1.0


def matrix_rate(multiply: Callable[[int], float]) -> dict[str, float]:
    """Measures products of square float32 matrices; `multiply` makes one of so many rows, and returns its seconds.

    Returns "flops_per_second" of the best of some products, and "matrix_rows", their size: the first power of two whose
    product takes long enough to be measured.
    """
    size, seconds = 256, 0.0
    while seconds < _LONG_ENOUGH and size < _LARGEST:
        size *= 2
        seconds = multiply(size)
    begun, tries = time.monotonic(), 0
    while tries < _TRIES or time.monotonic() < begun + _SECONDS:
        seconds, tries = min(seconds, multiply(size)), tries + 1
    return {"flops_per_second": 2 * size**3 / seconds, "matrix_rows": size}


def noted_rate(study_dir: pathlib.Path, machine: str) -> float | None:
    """The operations a second of a machine that are noted in a study's folder; None if there are none."""
    rate = read_note(_path(study_dir, machine)).get("flops_per_second")
    return rate if isinstance(rate, float) and math.isfinite(rate) else None


def note_rate(study_dir: pathlib.Path, machine: str, multiply: Callable[[int], float]) -> float:
    """The operations a second of a machine: the most that a study has measured, which is kept in its folder.

    They are measured each time, because a machine that did something else besides is not as fast as it can be.
    """
    noted, measured = noted_rate(study_dir, machine), matrix_rate(multiply)
    if noted is not None and noted >= measured["flops_per_second"]:
        return noted
    path = _path(study_dir, machine)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"machine": machine, **measured})
    return measured["flops_per_second"]


def _path(study_dir: pathlib.Path, machine: str) -> pathlib.Path:
    return study_dir / "machines" / f"{re.sub(r'[^a-z0-9]+', '_', machine.lower()).strip('_')}.json"
