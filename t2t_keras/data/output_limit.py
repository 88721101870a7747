"""Derives the limit on the length of outputs from the lengths of the training pairs.

The search stops when no live hypothesis can overtake the finished ones, by a bound that assumes the longest possible
output. A limit that is much too high therefore costs steps, and one that is too low truncates outputs. The limit is
determined as follows:

- The limit is `factor * source + offset` tokens, end symbols included, as in `DecodeConfig`.
- Nine factors are tried, in steps of a quarter, because the search multiplies with quarters exactly in float32. The
  first factor is the smallest that is at least 1.1 times the ratio of all target tokens to all source tokens, so that
  the limit also suffices for sources that are longer than all training sources.
- The offset for a factor is the smallest non-negative number with which at most one pair in 10,000 exceeds the limit,
  plus a margin for unseen text. The margin is a third of the mean target length, at least 5 tokens. It is larger for
  fewer than 10,000 pairs, which do not show the offset that one pair in 10,000 needs. Since the frequency of long
  outputs falls about exponentially, each factor of ten below 10,000 adds twice the margin: for 300 pairs, it is four
  times as long.
- If there are several corpora, the one that needs the largest offset decides. Otherwise, the limit could exclude all
  pairs of a small corpus in a different language.
- The factor with the smallest mean limit over all pairs is chosen.

If no training target is empty, outputs must not be empty either (`min_length`), because the empty output sometimes has
the highest score if a model is unsure about a long sentence.
"""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from t2t_keras.config import DataConfig
from t2t_keras.tasks.registry import task

_QUARTERS = 4
_FACTORS = 9
_PAIRS_PER_OVERLONG = 10_000
_MIN_MARGIN = 5

_SETTINGS = ("max_length_factor", "max_length_offset")  # fields of `DecodeConfig`

Lengths = tuple[np.ndarray, np.ndarray]  # tokens of sources and targets, end symbols included, int [pairs] each


@dataclasses.dataclass(frozen=True)
class _LengthCounts:
    """The distinct combinations of source and target length in a corpus.

    Attributes:
        sources: source lengths, int64 [kinds].
        targets: target lengths, int64 [kinds].
        pairs: number of pairs with these lengths, int64 [kinds].
    """

    sources: np.ndarray
    targets: np.ndarray
    pairs: np.ndarray

    @property
    def least_quarters(self) -> int:
        """The smallest factor, in quarters, that is at least 1.1 times the ratio of target tokens to source tokens."""
        targets, sources = (int(np.dot(side, self.pairs)) for side in (self.targets, self.sources))
        return -(-_QUARTERS * 11 * targets // (10 * sources))

    def offset(self, quarters: int) -> int:
        """Returns the offset for a factor, including the margin."""
        shortfalls = self.targets - self._scale(quarters)  # --> [kinds]
        longest_first = np.argsort(-shortfalls)
        counts = np.cumsum(self.pairs[longest_first])  # --> [kinds], number of pairs that need as much or more
        total = int(counts[-1])
        shortfall = shortfalls[longest_first[np.searchsorted(counts, total // _PAIRS_PER_OVERLONG, side="right")]]
        margin = max(_MIN_MARGIN, int(np.dot(self.targets, self.pairs)) / total / 3)
        scarcity = max(0.0, math.log10(_PAIRS_PER_OVERLONG / total))
        return max(0, int(shortfall)) + math.ceil(margin * (1 + 2 * scarcity))

    def cost(self, quarters: int, offset: int) -> int:
        """Returns the sum of the limits of all pairs."""
        return int(np.dot(self._scale(quarters) + offset, self.pairs))

    def _scale(self, quarters: int) -> np.ndarray:
        """Returns a factor times the source lengths, rounded up as in the search, int64 [kinds]."""
        return -(-self.sources * quarters // _QUARTERS)


def output_limit(config: DataConfig, corpora: Iterable[Iterable[Lengths]]) -> dict[str, Any]:
    """Derives the settings of `DecodeConfig` that limit the length of outputs.

    Args:
        config: data settings.
        corpora: lengths of the training pairs of each corpus, in parts.

    Returns:
        The settings by name. Empty, so that the defaults apply, if the task sets its own limits or sources are masked
        anew in each epoch.
    """
    kind = task(config.task)
    if kind.is_masked or any(name in kind.decode for name in _SETTINGS):
        return {}
    counts = [each for each in map(_count_lengths, corpora) if len(each.pairs)]
    least = max(each.least_quarters for each in counts)
    limits = []
    for quarters in range(least, least + _FACTORS):
        offset = max(each.offset(quarters) for each in counts)
        limits.append((sum(each.cost(quarters, offset) for each in counts), quarters / _QUARTERS, offset))
    _, *cheapest = min(limits)
    has_empty = any((each.targets == 1).any() for each in counts)  # targets that have only the end symbol
    return {**dict(zip(_SETTINGS, cheapest, strict=True)), "min_length": int(not has_empty)}


def _count_lengths(parts: Iterable[Lengths]) -> _LengthCounts:
    """Counts the combinations of lengths in all parts of a corpus."""
    kinds = counts = np.zeros(0, np.int64)
    for sources, targets in parts:
        length_pairs = np.asarray(sources, np.int64) << 32 | targets  # --> [pairs], one number for two lengths
        kinds, places = np.unique(np.concatenate([kinds, length_pairs]), return_inverse=True)
        weights = np.concatenate([counts, np.ones(len(length_pairs), np.int64)])
        counts = np.bincount(places, weights, len(kinds)).astype(np.int64)
    return _LengthCounts(kinds >> 32, kinds & (1 << 32) - 1, counts)
