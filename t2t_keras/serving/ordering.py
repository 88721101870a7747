"""In which order waiting work is done, and how long it will take: nothing here has a clock or a thread.

A row's cost is its bytes of text and some more (`Signature.costs`). Rows of one cost class are run together: costs up
to 128, up to 512, up to 2048, and so on.
"""

import collections
from collections.abc import Mapping

_SMALLEST_COST = 128
_FIRST_LARGE_CLASS = 2

# Added to each waiting time, so that of two requests that have just come the smaller goes first.
_HEAD_START_SECONDS = 0.1

# How much of what was measured before a new measurement leaves.
_KEPT = 0.9


def cost_class(cost: int) -> int:
    """The class of a row of this cost, from 0."""
    return ((max(cost - 1, 0) // _SMALLEST_COST).bit_length() + 1) // 2


def is_large(number: int) -> bool:
    """Whether batches of this cost class take so long that one stream is kept free of them."""
    return number >= _FIRST_LARGE_CLASS


def urgency(arrived: float, cost: float, now: float) -> float:
    """How urgent a row is that has waited since `arrived`, in seconds; the most urgent goes first.

    It grows with the waiting time, and the faster the less the row costs: short work goes first, but long work that
    waits is overtaken less and less.
    """
    return (now - arrived + _HEAD_START_SECONDS) / max(cost, 1)


class Pace:
    """How long work takes, as measured of the batches of each cost class.

    Until some twenty batches of a class have run it takes them to be faster than they are, because the first calls of
    a signature are slow and nobody should be refused for them.

    Args:
        batch_cost: the cost of a full batch.
    """

    def __init__(self, batch_cost: int) -> None:
        self._seconds: collections.defaultdict[int, float] = collections.defaultdict(float)
        self._costs: collections.defaultdict[int, float] = collections.defaultdict(lambda: float(batch_cost))

    def measure(self, number: int, cost: int, seconds: float) -> None:
        """Takes in that a batch of class `number` and of this cost took so many seconds."""
        self._seconds[number] = _KEPT * self._seconds[number] + (1 - _KEPT) * seconds
        self._costs[number] = _KEPT * self._costs[number] + (1 - _KEPT) * cost

    def seconds(self, costs: Mapping[int, int]) -> float:
        """How long one stream takes for work of these costs, by class."""
        return sum(cost * self._seconds[number] / self._costs[number] for number, cost in costs.items())
