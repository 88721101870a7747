"""Decides the order of waiting work and estimates its run time. The module uses neither clocks nor threads.

The cost of a row is its bytes of text plus an overhead (`Signature.costs`). Rows of the same cost class are batched
together: costs up to 128, up to 512, up to 2048, and so on.
"""

import collections
from collections.abc import Mapping

_SMALLEST_COST = 128
_FIRST_LARGE_CLASS = 2

# Added to each waiting time, so that the smaller of two new requests goes first.
_HEAD_START_SECONDS = 0.1

# Weight of earlier measurements in the moving averages.
_DECAY = 0.9


def cost_class(cost: int) -> int:
    """Returns the cost class of a row; classes are numbered from 0."""
    return ((max(cost - 1, 0) // _SMALLEST_COST).bit_length() + 1) // 2


def is_large(number: int) -> bool:
    """Returns whether batches of this cost class take so long that one stream is kept free of them."""
    return number >= _FIRST_LARGE_CLASS


def urgency(arrived: float, cost: float, now: float) -> float:
    """Returns the urgency of a row that has waited since `arrived`, in seconds; the most urgent row goes first.

    Urgency grows with the waiting time, and faster for cheaper rows. Short work goes first, but the longer a costly row
    waits, the fewer rows overtake it.
    """
    return (now - arrived + _HEAD_START_SECONDS) / max(cost, 1)


class Pace:
    """Estimates run times from measurements of each cost class.

    The averages start at 0 seconds, so the first 20 or so batches of a class are underestimated. This is intended: the
    first calls of a signature are slow, and no request should be refused because of them.

    Args:
        batch_cost: cost of a full batch.
    """

    def __init__(self, batch_cost: int) -> None:
        self._seconds: collections.defaultdict[int, float] = collections.defaultdict(float)
        self._costs: collections.defaultdict[int, float] = collections.defaultdict(lambda: float(batch_cost))

    def measure(self, number: int, cost: int, seconds: float) -> None:
        """Records the cost and the run time in seconds of a batch of class `number`."""
        self._seconds[number] = _DECAY * self._seconds[number] + (1 - _DECAY) * seconds
        self._costs[number] = _DECAY * self._costs[number] + (1 - _DECAY) * cost

    def seconds(self, costs: Mapping[int, int]) -> float:
        """Returns the expected seconds that one stream needs for work with these total costs, by class."""
        return sum(cost * self._seconds[number] / self._costs[number] for number, cost in costs.items())
