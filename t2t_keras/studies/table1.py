"""Table 1 of the paper: the theoretical and the measured costs of layer types."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from t2t_keras.studies.data_facts import DataFacts
from t2t_keras.studies.job import Job
from t2t_keras.studies.study_settings import StudySettings
from t2t_keras.studies.table import Column, Line, Results, Table

# Name, name in the paper, and the theoretical complexity per layer, sequential operations and maximum path length.
ROWS = (
    ("self_attention", "Self-Attention", "O(n²·d)", "O(1)", "O(1)"),
    ("recurrent", "Recurrent", "O(n·d²)", "O(n)", "O(n)"),
    ("convolutional", "Convolutional", "O(k·n·d²)", "O(1)", "O(log_k(n))"),
    ("restricted", "Self-Attention (restricted)", "O(r·n·d)", "O(1)", "O(n/r)"),
)
_HEADINGS = ("layer type", "complexity per layer", "sequential operations", "maximum path length")
_TIME = Column("time, exponent of n", "time_exponent", "{:.2f}".format)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerCostJob(Job):
    """Measures one layer type at several lengths.

    Attributes:
        layer_type: "self_attention", "recurrent", "convolutional" or "restricted".
        d_model: width of inputs and outputs.
        batch: number of sequences in a pass.
        lengths: sequence lengths (n in the paper), in ascending order.
        fitted: number of the longest lengths that the exponents are fitted to.
        kernel_size: kernel size of the convolution (k).
        neighbours: number of positions that restricted self-attention attends to (r), half of them on either side.
        path_tokens: sequence length at which sequential operations and path lengths are counted.
    """

    phases: ClassVar[tuple[str, ...]] = ("t2t_keras.studies.layer_costs:measure",)

    layer_type: str
    d_model: int = 64
    batch: int = 4
    lengths: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
    fitted: int = 3
    kernel_size: int = 3
    neighbours: int = 16
    path_tokens: int = 64

    def settings(self) -> dict[str, Any]:
        return {**vars(self), "lengths": list(self.lengths), "needs": list(self.needs)}


def make_table(settings: StudySettings, data: DataFacts) -> Table:
    """Returns Table 1 for a study; it needs no data."""
    jobs = tuple(LayerCostJob(name=name, layer_type=name) for name, *_ in ROWS)
    first = jobs[0]
    longest = first.lengths[-1]
    columns: tuple[Column | str, ...] = (
        *_HEADINGS[:2],
        _TIME,
        Column("memory, exponent of n", "memory_exponent", "{:.2f}".format),
        *(Column(f"ms at n = {n}", f"seconds_{n}", lambda s: f"{1000 * s:,.2f}") for n in (first.lengths[0], longest)),
        Column(f"MiB at n = {longest}", f"bytes_{longest}", lambda size: f"{size / 2**20:,.0f}"),
        _HEADINGS[2],
        Column(f"counted at n = {first.path_tokens}", "sequential_operations", "{:.0f}".format),
        _HEADINGS[3],
        Column(f"measured at n = {first.path_tokens}", "path_length", "{:.0f}".format),
    )
    caption = (
        f"Layers of width d = {first.d_model}, one head, k = {first.kernel_size}, r = {first.neighbours}, a batch of "
        f"{first.batch}: a forward and backward pass at n from {first.lengths[0]} to {longest:,}. Exponents are fitted "
        f"to the last {first.fitted} of {len(first.lengths)} lengths. The paper does not count the projections of "
        "attention, which cost O(n·d²). The path length is the number of layers after which the last output depends on "
        "the first input, times the sequential operations of a layer. In a stack, each convolution is dilated k times "
        "as far as the one below."
    )
    lines = tuple(
        Line(job.name, (job.name,), dict(zip(_HEADINGS, texts, strict=True)))
        for job, (_, *texts) in zip(jobs, ROWS, strict=True)
    )
    return Table("table1", caption, jobs, lines, columns, _TIME, draw=_draw, needs_data=False)


def _draw(path: pathlib.Path, results: Mapping[str, Sequence[Results]]) -> None:
    """Draws time and memory against the sequence length."""
    from t2t_keras.pictures.curves import draw_curves  # imports Matplotlib, which takes half a second

    panels: dict[str, dict[str, dict[float, float]]] = {}
    for name, key, unit in (("time of a pass, ms", "seconds_", 1e-3), ("memory of a pass, MiB", "bytes_", 2**20)):
        panels[name] = {
            label: {
                int(field.removeprefix(key)): value / unit
                for job_results in results[row]
                for field, value in job_results.items()
                if field.startswith(key) and value
            }
            for row, label, *_ in ROWS
        }
    draw_curves(path, panels, "length n")
