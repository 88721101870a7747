"""BLEU against sentences per second, for engines and searches, from the table in `performance_decoding.md`."""

import re
from pathlib import Path
from typing import NamedTuple

from chart import Axis, Chart, legend
from drawing import Drawing

_PAGE = Path(__file__).parents[1] / "performance_decoding.md"
_ENGINES = {  # names in the table: colour and shape
    "`tensorflow`": ("attention", "circle"),
    "`tensorflow --bfloat16`": ("embedding", "square"),
    "`ctranslate2`": ("network", "triangle"),
    "`ctranslate2 --compute_type=int8`": ("output", "diamond"),
}


class Search(NamedTuple):
    """A dot of the chart: an engine, a beam size, the speed in sentences per second, and BLEU."""

    engine: str
    beam: int
    speed: float
    bleu: float


def searches() -> list[Search]:
    """Returns the rows of the table."""
    text = _PAGE.read_text(encoding="utf-8").partition("| engine | beam |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in row.split("|")] for row in re.findall(r"^\| (.+) \|$", text, re.MULTILINE)]
    return [Search(row[0], int(row[1]), _middle(row[2]), float(row[3])) for row in rows if row[0] in _ENGINES]


def _middle(cell: str) -> float:
    values = [float(value.replace(",", "")) for value in cell.split(" to ")]
    return sum(values) / len(values)


def engines() -> str:
    """Draws a dot for each engine and beam size: faster to the right, better at the top."""
    drawing = Drawing(820, 354, "BLEU against sentences per second, for engines and searches of one model")
    speeds = Axis("sentences per second", 0, 3500, {value: f"{value:,}" for value in range(0, 3501, 500)}, False)
    scores = Axis("BLEU on test2016", 38.8, 40.5, {value: f"{value:g}" for value in (39, 39.5, 40, 40.5)}, False)
    chart = Chart(drawing, (58, 40, 740, 240), speeds, scores)
    for engine, look in _ENGINES.items():
        searches_of_engines = [search for search in searches() if search.engine == engine]
        chart.curve([(search.speed, search.bleu) for search in searches_of_engines], *look)
    legend(drawing, 58, 336, {name.strip("`"): look for name, look in _ENGINES.items()})
    drawing.text(798, 22, "top: a beam of 4; bottom: greedy", "right", "small", "quiet")
    return drawing.svg()
