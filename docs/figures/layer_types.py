"""Time and memory of the layer types of Table 1 against the length of their input, from the committed records."""

import json
from pathlib import Path

from chart import Axis, Chart, legend
from drawing import Drawing

_RECORDS = Path(__file__).parents[1] / "tables/table1"
LAYERS = {  # by the folder of the record: label, colour and shape
    "self_attention": ("self-attention", "network", "circle"),
    "recurrent": ("recurrent", "attention", "square"),
    "convolutional": ("convolutional", "output", "triangle"),
    "restricted": ("self-attention (restricted)", "embedding", "diamond"),
}
_LENGTHS = Axis("length n", 14, 4700, {2.0**power: f"{2**power:,}" for power in range(4, 13, 2)})
_MEASURES = (
    ("seconds", 1e-3, Axis("milliseconds of a forward and backward pass", 0.8, 600, {1: "1", 10: "10", 100: "100"})),
    ("bytes", 2**20, Axis("MiB that a pass takes", 0.5, 1600, {1: "1", 10: "10", 100: "100", 1000: "1,000"})),
)


def measured(layer: str, measure: str, unit: float) -> list[tuple[float, float]]:
    """Returns lengths and the measurement at each, "seconds" or "bytes", in a unit."""
    record = json.loads((_RECORDS / layer / "row.json").read_text(encoding="utf-8"))
    return [(n, record["results"][f"{measure}_{n}"] / unit) for n in record["settings"]["lengths"]]


def layer_types() -> str:
    """Returns a chart of time and one of memory, both with logarithmic axes."""
    drawing = Drawing(820, 400, "Time and memory of four types of layers against the length of their input")
    for number, (measure, unit, axis) in enumerate(_MEASURES):
        chart = Chart(drawing, (58 + number * 405, 40, 335, 240), _LENGTHS, axis)
        for layer, (_, kind, shape) in LAYERS.items():
            chart.curve(measured(layer, measure, unit), kind, shape)
    legend(drawing, 58, 336, {name: (kind, shape) for name, kind, shape in LAYERS.values()})
    link = "t2t_keras/studies/layer_costs.py#measure"
    drawing.box(58, 354, 740, 32, "d = 64, one head, k = 3, r = 16, a batch of 4: how it is measured", link=link)
    return drawing.svg()
