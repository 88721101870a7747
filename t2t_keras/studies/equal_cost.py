"""The systems of Table 2 at equal cost: all train for the same time, so cheaper systems make more updates."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

from t2t_keras.studies import table2
from t2t_keras.studies.data_facts import DataFacts
from t2t_keras.studies.job import Job
from t2t_keras.studies.plan import planned_flops
from t2t_keras.studies.rows import Recipe
from t2t_keras.studies.study_settings import StudySettings
from t2t_keras.studies.table import Line, Results, Table

# Fractions of the time that the slowest system takes for its updates in Table 2.
SHARES = {"tenth": 0.1, "fifth": 0.2, "whole": 1.0}
# Seconds per update, measured for Table 2 on two cores of an AMD EPYC. The value of rnn_attention is that of gnmt,
# scaled by the ratio of their operations.
SECONDS = {
    "transformer": 0.229,
    "transformer_moe": 0.261,
    "bytenet": 0.326,
    "deep_att": 1.141,
    "rnn_attention": 0.562,
    "gnmt": 0.693,
    "conv_s2s": 0.452,
    "moe": 0.568,
    "moe_none": 0.494,
}
_LENGTH = 30  # assumed tokens per sentence in the planned cost of an update
_COLUMNS = ("system", "share", "updates", *table2.SCORES, table2.HOURS)


def make_table(settings: StudySettings, data: DataFacts) -> Table:
    """Returns the table for a study, with one row for each time share of each system trained from scratch."""
    data.check_task(settings.table, "translation", "denoising")
    systems = [row for row in table2.ROWS[settings.scale] if not row.begins_from]
    first = Recipe(settings, data, systems[0], table2.COMMON[settings.scale], table2.USUAL_STEPS[settings.scale])
    costs = SECONDS
    if settings.scale == "paper":  # no seconds were measured for these sizes, so planned operations are used
        configs = {row.name: first.config(row) for row in systems}
        costs = {name: planned_flops(config, _LENGTH) / config.train.max_steps for name, config in configs.items()}
    slowest = max(costs[row.name] * first.config(row).train.max_steps for row in systems)
    jobs: list[Job] = []
    lines: list[Line] = []
    for row in systems:
        for name, share in SHARES.items():
            updates = max(round(share * slowest / costs[row.name]), 10)
            cost_row = dataclasses.replace(row, name=f"{row.name}_{name}", is_repeated=False)
            recipe = dataclasses.replace(
                first, settings=dataclasses.replace(settings, steps=None), first=cost_row, usual_steps=updates
            )
            jobs += recipe.trainings(cost_row)
            facts = {"system": row.label, "share": f"{share:g}", "updates": f"{updates:,}"}
            lines.append(Line(cost_row.name, (jobs[-1].name,), facts))
    return Table(
        "table2_equal_cost",
        "The systems of Table 2, trained for equal times: a tenth, a fifth and all of the time that the slowest "
        "system takes for its updates in Table 2. Warm-up and checkpoint intervals are in proportion to the updates of "
        f"a row. The highest learning rate is that of its preset. One seed. {first.data_caption()}",
        tuple(jobs),
        tuple(lines),
        _COLUMNS,
        table2.BLEU,
        draw=_draw,
    )


def _draw(path: pathlib.Path, results: Mapping[str, Sequence[Results]]) -> None:
    """Draws BLEU against operations."""
    from t2t_keras.pictures.curves import draw_curves  # imports Matplotlib, which takes half a second

    curves: dict[str, dict[float, float]] = {}
    for name, row_results in results.items():
        for result in row_results:
            if "test_bleu" not in result:  # there may be no test set
                continue
            curves.setdefault(name.rpartition("_")[0], {})[result["flops_by_count"]] = result["test_bleu"]
    curves = {name: dict(sorted(curve.items())) for name, curve in curves.items()}
    draw_curves(path, {"BLEU of the test set": curves}, "training FLOPs, counted", is_logarithmic=(True, False))
