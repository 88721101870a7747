"""The cost of preparing and planning against the number of pairs, from the table in `preparation_measured.md`."""

import re
from pathlib import Path

from chart import Axis, Chart, legend
from drawing import Drawing

_PAGE = Path(__file__).parents[1] / "preparation_measured.md"
_ROWS = {  # names of the table's rows, by chart and curve
    "time": {"preparing": "preparing, processor time", "planning": "opening and planning, processor time"},
    "memory": {"preparing": "preparing: peak of all processes", "planning": "opening and planning: memory"},
}
_CURVES = {"preparing": ("network", "circle"), "planning": ("attention", "square")}
_PAIRS = Axis("pairs", 8e4, 2e8, {1e5: "100,000", 1e6: "1 million", 1e7: "10 million", 1e8: "100 million"})
_AXES = {
    "time": Axis(
        "seconds of processor time",
        0.01,
        1.5e4,
        {0.01: "0.01", 0.1: "0.1", 1: "1", 10: "10", 1e2: "100", 1e3: "1,000", 1e4: "10,000"},
    ),
    "memory": Axis("GB of memory", 0.005, 8, {0.01: "0.01", 0.1: "0.1", 1: "1"}),
}


def measured(chart: str, curve: str) -> list[tuple[float, float]]:
    """Returns pairs of the number of sentence pairs and the cost in seconds or GB."""
    text = "".join(_PAGE.read_text(encoding="utf-8").partition("| pairs | 100,000 |")[1:])
    rows = [[cell.strip() for cell in row.split("|")] for row in re.findall(r"^\| (.+) \|$", text, re.MULTILINE)]
    cells = {row[0]: row[1:] for row in reversed(rows)}  # the first table of the page
    pairs = [float(cell.replace(",", "")) for cell in cells["pairs"]]
    return list(zip(pairs, map(_value, cells[_ROWS[chart][curve]]), strict=True))


def _value(cell: str) -> float:
    number, unit = cell.replace(",", "").split()
    return float(number) * {"s": 1.0, "GB": 1.0, "MB": 1e-3}[unit]


def plan_costs() -> str:
    """Draws a chart of the time and a chart of the memory; all axes are logarithmic."""
    drawing = Drawing(820, 320, "Processor time and memory of preparing and of planning against the number of pairs")
    for number, (name, axis) in enumerate(_AXES.items()):
        chart = Chart(drawing, (58 + number * 405, 40, 335, 200), _PAIRS, axis)
        for curve, (kind, shape) in _CURVES.items():
            chart.curve(measured(name, curve), kind, shape)
    names = {"preparing": _CURVES["preparing"], "opening and planning an epoch": _CURVES["planning"]}
    legend(drawing, 58, 298, names)
    return drawing.svg()
