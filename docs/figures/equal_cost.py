"""BLEU against training FLOPs, for the systems of Table 2 at equal training time, from the records."""

import json
from pathlib import Path

from chart import Axis, Chart, legend
from cost_and_score import KINDS, SYSTEMS
from drawing import Drawing

_RECORDS = Path(__file__).parents[1] / "tables/table2_equal_cost"
_SHAPES = {"tenth": "circle", "fifth": "diamond", "whole": "triangle"}  # by the share of the training time
_COST = Axis(
    "training FLOPs, counted", 5e13, 1e15, {5e13: "5e13", 1e14: "1e14", 2e14: "2e14", 5e14: "5e14", 1e15: "1e15"}
)
_SCORE = Axis("BLEU on test2016", 10, 42, {bleu: str(bleu) for bleu in range(10, 43, 5)}, is_logarithmic=False)
_PLACE = 58.0, 40.0, 560.0, 330.0
_LINE = 17.0  # minimum distance between two names


def measured() -> dict[str, dict[str, tuple[float, float]]]:
    """Returns the FLOPs and the BLEU by system and share."""
    results_by_share: dict[str, dict[str, tuple[float, float]]] = {}
    for system in SYSTEMS:
        for share in _SHAPES:
            path = _RECORDS / f"{system}_{share}/seed_1/row.json"
            if path.exists():
                results = json.loads(path.read_text(encoding="utf-8"))["results"]
                results_by_share.setdefault(system, {})[share] = results["flops_by_count"], results["test_bleu"]
    return results_by_share


def spread(heights: list[float]) -> list[float]:
    """Moves sorted heights apart until each is at least a line below the previous one."""
    heights_so_far: list[float] = []
    for height in heights:
        heights_so_far.append(max(height, heights_so_far[-1] + _LINE) if heights_so_far else height)
    return heights_so_far


def equal_cost() -> str:
    """Draws a curve for each system, with a mark for each share of the time and the name at the right."""
    drawing = Drawing(820, 440, "BLEU against training FLOPs, for systems with equal training time")
    chart = Chart(drawing, _PLACE, _COST, _SCORE)
    last = {}
    for system, shares in measured().items():
        kind = KINDS[SYSTEMS[system][1]]
        points = {share: chart.point(*values) for share, values in shares.items()}
        drawing.curve(list(points.values()), kind)
        for share, point in points.items():
            drawing.mark(*point, kind, _SHAPES[share])
        last[system] = list(points.values())[-1]
    left = _PLACE[0] + _PLACE[2] + 16
    names = sorted(last, key=lambda system: last[system][1])
    for system, height in zip(names, spread([last[system][1] for system in names]), strict=True):
        drawing.rule((last[system][0] + 8, last[system][1]), (left - 4, height))
        drawing.text(left, height, SYSTEMS[system][0], "left", "small")
    kinds = {f"layers of {kind}" if kind == "attention" else kind: (color, "square") for kind, color in KINDS.items()}
    words = {"tenth": "a tenth of the time", "fifth": "a fifth of it", "whole": "all of it"}
    used = {share for shares in measured().values() for share in shares}
    shapes = {words[share]: ("plain", shape) for share, shape in _SHAPES.items() if share in used}
    legend(drawing, 58, 422, {**kinds, **shapes})
    return drawing.svg()
