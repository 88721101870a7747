"""How long an output may be, learned from the lengths of the training pairs.

A search stops when no living hypothesis can overtake the finished ones, by a bound that takes the longest output there
may be. A limit far beyond what outputs need therefore costs steps, and one that is too short cuts outputs. The rule:

- A limit is `factor * source + offset` tokens, end symbols counted, as in `DecodeConfig`.
- Factors are quarters, nine of them. The first is the least that is a tenth above what targets have of the tokens of
  their sources, so that a source that is longer than all of training has room in proportion. The search's float32
  multiplies with quarters without rounding.
- The offset of a factor is the smallest, from 0, that leaves at most one pair in 10,000 beyond the limit. To it comes a
  margin of a third of the mean target, at least 5 tokens, because other text is not this one. What one pair in 10,000
  needs does not show in fewer pairs. Long outputs get rarer about exponentially, so that the margin grows by twice
  itself for each factor of ten below 10,000 pairs: it is four times as long for 300.
- Each corpus of several has its own offset, and the largest counts, because a small one in another language would else
  be the one pair in 10,000 of all.
- The factor is that with the smallest mean limit of all pairs.

Where no target is empty, no output may be either (`min_length`): to end at once is the best hypothesis now and then, of
a long sentence that a model is unsure of.
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
_PAIRS_A_BEYOND = 10_000
_LEAST_MARGIN = 5

_SETTINGS = ("max_length_factor", "max_length_offset")  # of `DecodeConfig`

Lengths = tuple[np.ndarray, np.ndarray]  # of sources and of targets, end symbols counted, int [pairs] each


@dataclasses.dataclass(frozen=True)
class _Counted:
    """How often lengths occur together in a corpus: int64 [kinds] each."""

    sources: np.ndarray
    targets: np.ndarray
    pairs: np.ndarray

    @property
    def least_quarters(self) -> int:
        """The least factor, in quarters, that is a tenth above what targets have of their sources' tokens."""
        targets, sources = (int(np.dot(side, self.pairs)) for side in (self.targets, self.sources))
        return -(-_QUARTERS * 11 * targets // (10 * sources))

    def offset(self, quarters: int) -> int:
        """The offset that goes with a factor, its margin added."""
        needed = self.targets - self._scaled(quarters)  # --> [kinds]
        longest_first = np.argsort(-needed)
        counts = np.cumsum(self.pairs[longest_first])  # --> [kinds], of pairs that need as much or more
        total = int(counts[-1])
        smallest = needed[longest_first[np.searchsorted(counts, total // _PAIRS_A_BEYOND, side="right")]]
        margin = max(_LEAST_MARGIN, int(np.dot(self.targets, self.pairs)) / total / 3)
        unseen = max(0.0, math.log10(_PAIRS_A_BEYOND / total))
        return max(0, int(smallest)) + math.ceil(margin * (1 + 2 * unseen))

    def cost(self, quarters: int, offset: int) -> int:
        """The sum of the limits of all pairs."""
        return int(np.dot(self._scaled(quarters) + offset, self.pairs))

    def _scaled(self, quarters: int) -> np.ndarray:
        """A factor times the lengths of sources, as a search rounds it, int64 [kinds]."""
        return -(-self.sources * quarters // _QUARTERS)


def output_limit(config: DataConfig, corpora: Iterable[Iterable[Lengths]]) -> dict[str, Any]:
    """The settings of `DecodeConfig` that limit outputs, learned from the pairs of each corpus, part by part.

    Empty, so that the usual limit holds, where the task says itself how long an output is, and where sources are masked
    anew in each epoch.
    """
    kind = task(config.task)
    if kind.is_masked or any(name in kind.decode for name in _SETTINGS):
        return {}
    counted = [each for each in map(_counted, corpora) if len(each.pairs)]
    least = max(each.least_quarters for each in counted)
    limits = []
    for quarters in range(least, least + _FACTORS):
        offset = max(each.offset(quarters) for each in counted)
        limits.append((sum(each.cost(quarters, offset) for each in counted), quarters / _QUARTERS, offset))
    _, *cheapest = min(limits)
    has_empty = any((each.targets == 1).any() for each in counted)  # the end symbol alone
    return {**dict(zip(_SETTINGS, cheapest, strict=True)), "min_length": int(not has_empty)}


def _counted(parts: Iterable[Lengths]) -> _Counted:
    """Adds up how often lengths occur together in the parts of a corpus."""
    kinds = counts = np.zeros(0, np.int64)
    for sources, targets in parts:
        both = np.asarray(sources, np.int64) << 32 | targets  # --> [pairs], one number for two lengths
        kinds, places = np.unique(np.concatenate([kinds, both]), return_inverse=True)
        weights = np.concatenate([counts, np.ones(len(both), np.int64)])
        counts = np.bincount(places, weights, len(kinds)).astype(np.int64)
    return _Counted(kinds >> 32, kinds & (1 << 32) - 1, counts)
