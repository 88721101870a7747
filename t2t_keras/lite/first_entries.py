"""Sequences that are computed as far as they are used."""

from collections.abc import Callable

import numpy as np


class FirstEntries:
    """The first entries of a sequence; `compute(count)` is called when more are needed than ever before."""

    def __init__(self, compute: Callable[[int], np.ndarray]) -> None:
        self._compute = compute
        self._known: np.ndarray | None = None

    def __call__(self, count: int) -> np.ndarray:
        """The first `count` entries."""
        known = self._known
        if known is None or len(known) < count:
            known = self._known = self._compute(count)
        return known[:count]
