"""BLEU of every row of the attention study, from the committed records."""

import json
from pathlib import Path
from typing import NamedTuple

from chart import Axis, Chart, legend
from drawing import Drawing

_RECORDS = Path(__file__).parents[1] / "tables/attention"
_SCORES = {  # by the value of the setting: name, colour and shape
    "scaled_dot": ("scaled dot", "network", "circle"),
    "dot": ("dot", "attention", "diamond"),
    "additive": ("additive", "output", "triangle"),
}
_ROW = 24  # in pixels


class Row(NamedTuple):
    """A row of the study.

    Attributes:
        score: a key of `_SCORES`.
        d_key: the width of a key.
        window: `attention_window`, or None.
        deviation: the standard deviation of the attention scores before the first update.
        bleu: BLEU on the validation set.
    """

    score: str
    d_key: int
    window: int | None
    deviation: float
    bleu: float

    @property
    def name(self) -> str:
        """The label of the row."""
        window = f", window {self.window}" if self.window else ""
        return f"{_SCORES[self.score][0]}, d_k {self.d_key}{window}"


def rows() -> list[Row]:
    """Returns the measured rows, sorted by score, window and width."""
    measured_rows = []
    for path in _RECORDS.glob("*/seed_1/row.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        model, results = record["settings"]["config"]["model"], record["results"]
        d_key = model["d_key"] or model["d_model"] // model["num_heads"]
        values = results["score_deviation"], results["valid_bleu"]
        measured_rows.append(Row(model["attention_score"], d_key, model["attention_window"], *values))
    return sorted(measured_rows, key=lambda row: (list(_SCORES).index(row.score), row.window or 0, row.d_key))


def attention_study() -> str:
    """Draws a dot for each row, with its BLEU and the deviation of its attention scores."""
    measured_rows = rows()
    height = _ROW * len(measured_rows)
    drawing = Drawing(
        820, height + 112, "BLEU of the rows of the attention study, with the deviation of their attention scores"
    )
    bleu = Axis("BLEU on the validation set", 0, 50, {value: str(value) for value in range(0, 41, 10)}, False)
    names = Axis("", len(measured_rows), 0, {number + 0.5: row.name for number, row in enumerate(measured_rows)}, False)
    chart = Chart(drawing, (190, 24, 608, height), bleu, names)
    for number, row in enumerate(measured_rows):
        x, y = chart.point(row.bleu, number + 0.5)
        drawing.mark(x, y, *_SCORES[row.score][1:])
        drawing.text(x + 12, y, f"{row.bleu:.1f} (deviation {row.deviation:.2f})", "left", "small")
    scores = {row.score for row in measured_rows}
    legend(drawing, 190, height + 88, {name: tuple(look) for key, (name, *look) in _SCORES.items() if key in scores})
    return drawing.svg()
