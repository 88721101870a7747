"""Draws the figures of the documents that need no training: `python docs/figures/draw.py`."""

from collections.abc import Callable
from pathlib import Path

import architecture
import data_flow
import global_batch
import search_steps

FOLDER = Path(__file__).parents[1] / "images"
FIGURES: dict[str, Callable[[], str]] = {
    "figure_1.svg": architecture.figure_1,
    "figure_2.svg": architecture.figure_2,
    "data_flow.svg": data_flow.data_flow,
    "global_batch.svg": global_batch.global_batch,
    "beam_search.svg": search_steps.search_steps,
}

if __name__ == "__main__":
    for name, figure in FIGURES.items():
        (FOLDER / name).write_text(figure(), encoding="utf-8")
        print(FOLDER / name)
