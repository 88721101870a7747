"""A server's speed and response time against the number of clients, from the table in `serving_measured.md`."""

import re
from pathlib import Path

from chart import Axis, Chart, legend
from drawing import Drawing

_PAGE = Path(__file__).parents[1] / "serving_measured.md"
_ENGINES = {  # names in the table: colour and shape
    "tensorflow": ("attention", "circle"),
    "tensorflow, one by one": ("embedding", "square"),
    "ctranslate2": ("network", "triangle"),
    "CTranslate2 by itself": ("output", "diamond"),
}
_CLIENTS = Axis("clients", 0.85, 75, {1: "1", 8: "8", 64: "64"})
_MEASURES = (  # the column of the table, and its axis
    (2, Axis("sentences per second", 0, 520, {value: str(value) for value in range(0, 501, 100)}, False)),
    (4, Axis("median response time, ms", 5, 1500, {10: "10", 100: "100", 1000: "1,000"})),
)


def measured(engine: str, column: int) -> list[tuple[float, float]]:
    """Returns pairs of the number of clients and the measured value, without empty cells."""
    text = _PAGE.read_text(encoding="utf-8").partition("| clients | server |")[2]
    rows = [[cell.strip() for cell in row.split("|")] for row in re.findall(r"^\| (\d+ .*) \|$", text, re.MULTILINE)]
    cells = [(float(row[0]), row[column].partition(" ")[0]) for row in rows if row[1] == engine]
    return [(clients, float(cell.replace(",", ""))) for clients, cell in cells if cell]


def server_load() -> str:
    """Draws a chart of sentences per second and a chart of the response time."""
    drawing = Drawing(820, 320, "Sentences per second and response time against the number of clients")
    for number, (column, axis) in enumerate(_MEASURES):
        chart = Chart(drawing, (58 + number * 405, 40, 335, 200), _CLIENTS, axis)
        for engine, look in _ENGINES.items():
            chart.curve(measured(engine, column), *look)
    legend(drawing, 58, 298, _ENGINES)
    return drawing.svg()
