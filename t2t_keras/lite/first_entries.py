"""Sequences that are computed as far as somebody looks."""

from collections.abc import Callable

import numpy as np


class FirstEntries:
    """The first entries of a sequence, which are computed when more are asked for than ever before.

    Args:
        compute: from how many are asked for to an array of as many.
    """

    def __init__(self, compute: Callable[[int], np.ndarray]) -> None:
        self._compute = compute
        self._known: np.ndarray | None = None

    def __call__(self, count: int) -> np.ndarray:
        """The first `count` entries."""
        known = self._known
        if known is None or len(known) < count:
            known = self._known = self._compute(count)
        return known[:count]
