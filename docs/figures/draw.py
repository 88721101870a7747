"""Draws the figures of the documents that need no training: `python docs/figures/draw.py`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import architecture
import attention_study
import cost_and_score
import data_flow
import engines
import equal_cost
import global_batch
import layer_types
import parse_tree
import plan_costs
import search_steps
import server_load
import terminal

FOLDER = Path(__file__).parents[1] / "images"
FIGURES: dict[str, Callable[[], str]] = {
    "figure_1.svg": architecture.figure_1,
    "figure_2.svg": architecture.figure_2,
    "data_flow.svg": data_flow.data_flow,
    "global_batch.svg": global_batch.global_batch,
    "beam_search.svg": search_steps.search_steps,
    "table1.svg": layer_types.layer_types,
    "table2.svg": cost_and_score.cost_and_score,
    "table2_equal_cost.svg": equal_cost.equal_cost,
    "attention_study.svg": attention_study.attention_study,
    "plan_cost.svg": plan_costs.plan_costs,
    "engines.svg": engines.engines,
    "server_load.svg": server_load.server_load,
    "parse_tree.svg": parse_tree.parse_tree,
}
# Drawings of the recordings that `record.py` wrote.
RECORDINGS = {f"{path.stem}.svg": partial(terminal.recording, path) for path in Path(__file__).parent.glob("*.cast")}

if __name__ == "__main__":
    for name, figure in {**FIGURES, **RECORDINGS}.items():
        (FOLDER / name).write_text(figure(), encoding="utf-8")
        print(FOLDER / name)
