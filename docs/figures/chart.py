"""Charts: axes, a grid with labels, and a legend."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from drawing import Drawing


class Axis(NamedTuple):
    """An axis of a chart.

    Attributes:
        name: the quantity and its unit.
        low, high: the values at the ends.
        ticks: labels by value.
        is_logarithmic: whether the scale is logarithmic.
    """

    name: str
    low: float
    high: float
    ticks: Mapping[float, str]
    is_logarithmic: bool = True

    def share(self, value: float) -> float:
        """Returns the position of a value, from 0 (`low`) to 1 (`high`); raises a ValueError for other values."""
        low, high = self.low, self.high
        if not min(low, high) <= value <= max(low, high):
            raise ValueError(f"{self.name}: {value:g} is not between {low:g} and {high:g}")
        if self.is_logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return (value - low) / (high - low)


class Chart:
    """A part of a drawing with a horizontal and a vertical axis; the constructor draws the grid and the labels.

    Args:
        drawing: the drawing.
        place: left, top, width and height of the grid, in pixels.
        across, up: the horizontal and the vertical axis.
    """

    def __init__(self, drawing: Drawing, place: tuple[float, float, float, float], across: Axis, up: Axis) -> None:
        self._drawing, self._place, self._axes = drawing, place, (across, up)
        left, top, width, height = place
        for value, words in across.ticks.items():
            x = self.point(value, up.low)[0]
            drawing.rule((x, top), (x, top + height))
            drawing.text(x, top + height + 13, words, "small", "quiet")
        for value, words in up.ticks.items():
            y = self.point(across.low, value)[1]
            drawing.rule((left, y), (left + width, y))
            drawing.text(left - 6, y, words, "small", "quiet", "right")
        drawing.text(left, top - 14, up.name, "left")
        drawing.text(left + width / 2, top + height + 32, across.name)

    def point(self, across: float, up: float) -> tuple[float, float]:
        """Returns the place of a pair of values in the drawing, in pixels."""
        left, top, width, height = self._place
        x, y = (axis.share(value) for axis, value in zip(self._axes, (across, up), strict=True))
        return round(left + width * x, 1), round(top + height * (1 - y), 1)

    def curve(self, values: Iterable[tuple[float, float]], kind: str, shape: str) -> None:
        """Draws a line through pairs of values, with a mark at each."""
        points = [self.point(*pair) for pair in values]
        self._drawing.curve(points, kind)
        for x, y in points:
            self._drawing.mark(x, y, kind, shape)


def legend(drawing: Drawing, left: float, middle: float, names: Mapping[str, tuple[str, str]]) -> None:
    """Draws a row of names, each after its mark; `names` maps a name to a colour and a shape."""
    for name, (kind, shape) in names.items():
        drawing.mark(left + 6, middle, kind, shape)
        drawing.text(left + 18, middle, name, "left", "small")
        left += 40 + 6.2 * len(name)
