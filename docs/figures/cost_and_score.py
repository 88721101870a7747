"""BLEU against training FLOPs, for the systems of Table 2, from the committed records."""

import json
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from chart import Axis, Chart, legend
from drawing import Drawing

_RECORDS = Path(__file__).parents[1] / "tables/table2"
KINDS = {"attention": "network", "recurrent": "attention", "convolutional": "output"}  # colours by kind of layer
SYSTEMS = {  # by the folder of the records: name, kind of layers, and the sides of the labels
    "transformer": ("Transformer", "attention", "below", "left"),
    "transformer_moe": ("Transformer with experts", "attention", "left"),
    "bytenet": ("ByteNet", "convolutional", "right"),
    "conv_s2s": ("ConvS2S", "convolutional", "right", "right"),
    "deep_att": ("Deep-Att", "recurrent", "below", "right"),
    "rnn_attention": ("RNN with attention", "recurrent", "right"),
    "gnmt": ("GNMT", "recurrent", "right", "right"),
    "gnmt_rl": ("GNMT + RL", "recurrent", "right", "right"),
    "moe": ("MoE", "recurrent", "left"),
    "moe_none": ("MoE without experts", "recurrent", "left"),
}
_COST = Axis(
    "training FLOPs, counted",
    5e13,
    3e15,
    {5e13: "5e13", 1e14: "1e14", 2e14: "2e14", 5e14: "5e14", 1e15: "1e15", 2e15: "2e15"},
)
_SCORE = Axis("BLEU on test2016", 29, 40, {bleu: str(bleu) for bleu in range(30, 41, 2)}, is_logarithmic=False)
_PLACE = 58.0, 40.0, 740.0, 310.0
_CHARACTER, _LETTER = 6.4, 14  # maximum width and height of small letters


class System(NamedTuple):
    """A dot of the chart.

    Attributes:
        name: the label.
        kind: the kind of its layers.
        is_ensemble: whether it is an ensemble.
        flops: the FLOPs of its training.
        bleu: BLEU, the mean over seeds.
        side: the side of the label: "left", "right", "above" or "below".
    """

    name: str
    kind: str
    is_ensemble: bool
    flops: float
    bleu: float
    side: str


def systems() -> list[System]:
    """Returns the single models, averaged over their seeds, and their ensembles."""
    measured_systems = []
    for folder, (name, kind, *sides) in SYSTEMS.items():
        seeds = [_results(path) for path in sorted((_RECORDS / folder).glob("seed_*/row.json"))]
        flops, bleu = (fmean(seed[key] for seed in seeds) for key in ("flops_by_count", "test_bleu"))
        measured_systems.append(System(name, kind, False, flops, bleu, sides[0]))
        ensemble = _RECORDS / folder / "ensemble/row.json"
        if ensemble.exists() and len(sides) > 1:
            results = _results(ensemble)
            measured_systems.append(
                System(f"{name}, 2", kind, True, results["flops_by_count"], results["test_bleu"], sides[1])
            )
    return measured_systems


def _results(path: Path) -> dict[str, float]:
    return json.loads(path.read_text(encoding="utf-8"))["results"]


def label(place: tuple[float, float], system: System) -> tuple[float, float, float, float]:
    """Returns the rectangle of a system's label: left, top, right and bottom, in pixels."""
    x, y = place
    width = _CHARACTER * len(system.name)
    left = {"left": x - 9 - width, "right": x + 9}.get(system.side, x - width / 2)
    middle = {"above": y - 15, "below": y + 15}.get(system.side, y)
    return left, middle - _LETTER / 2, left + width, middle + _LETTER / 2


def cost_and_score() -> str:
    """Draws a dot for each system and ensemble: more FLOPs to the right, a better score at the top."""
    drawing = Drawing(820, 424, "BLEU against training FLOPs, for the systems of Table 2")
    chart = Chart(drawing, _PLACE, _COST, _SCORE)
    for system in systems():
        x, y = place = chart.point(system.flops, system.bleu)
        drawing.mark(x, y, KINDS[system.kind], "diamond" if system.is_ensemble else "circle")
        left, top, right, bottom = label(place, system)
        anchor = {"left": (right, "right"), "right": (left, "left")}.get(system.side, ((left + right) / 2,))
        drawing.text(anchor[0], (top + bottom) / 2, system.name, "small", *anchor[1:])
    names = {f"layers of {kind}" if kind == "attention" else kind: (color, "circle") for kind, color in KINDS.items()}
    legend(drawing, 58, 406, {**names, "ensemble of 2": ("plain", "diamond")})
    return drawing.svg()
