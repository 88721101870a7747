"""Compares attention scores and attention windows (sections 3.2.1 and 4 of the paper)."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, cast

from t2t_keras.config import TransformerConfig
from t2t_keras.studies.data_facts import DataFacts
from t2t_keras.studies.job import Job
from t2t_keras.studies.rows import PARAMETERS, Recipe, Row, in_millions
from t2t_keras.studies.study_settings import StudySettings
from t2t_keras.studies.table import Column, Line, Table
from t2t_keras.studies.training_job import TrainingJob

_PRESETS = {"tiny": "tiny", "paper": "base"}
_USUAL_STEPS = {"tiny": 1200, "paper": None}
_SCORES = ("scaled_dot", "dot", "additive")
_WIDTHS, _WINDOWS = (16, 64, 256), (1, 2, 4)
# Section 3.2.1 assumes queries and keys of unit variance. With Glorot initialization, their variance falls as d_k
# grows, so unscaled scores would start with a smaller spread at large d_k.
_COMMON = ("model.query_key_initializer=lecun_uniform",)


def _rows(preset: str) -> tuple[Row, ...]:
    """Returns rows for the preset, for each combination of score and key width, and for each window."""
    scores = (
        Row(f"{score}_{width}", preset, (f"model.attention_score={score}", f"model.d_key={width}"))
        for width in _WIDTHS
        for score in _SCORES
    )
    windows = (Row(f"window_{window}", preset, (f"model.attention_window={window}",)) for window in _WINDOWS)
    return (Row("base", preset, is_repeated=True), *scores, *windows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionJob(TrainingJob):
    """A training job that first measures the spread of the attention scores before any update."""

    phases: ClassVar[tuple[str, ...]] = ("t2t_keras.studies.score_spread:measure", *TrainingJob.phases)


ROWS: Mapping[str, tuple[Row, ...]] = {scale: _rows(preset) for scale, preset in _PRESETS.items()}

_BLEU = Column("BLEU (dev)", "valid_bleu", "{:.1f}".format)
_COLUMNS = (
    "score",
    "d_k",
    "window",
    _BLEU,
    Column("PPL (dev)", "valid_perplexity", "{:.2f}".format),
    Column("deviation of scores", "score_deviation", "{:.2f}".format),
    Column("hours", "hours", "{:.2f}".format, has_range=False),
    PARAMETERS,
)


def make_table(settings: StudySettings, data: DataFacts) -> Table:
    """Returns the table for a study, which compares attention scores at several key widths, and attention windows."""
    data.check_task(settings.table, "translation", "denoising")
    rows = ROWS[settings.scale]
    recipe = Recipe(settings, data, rows[0], _COMMON, _USUAL_STEPS[settings.scale])
    jobs: list[Job] = []
    lines: list[Line] = []
    for row in rows:
        trainings = [AttentionJob(**vars(training)) for training in recipe.trainings(row)]
        model = cast(TransformerConfig, trainings[0].config.model)
        facts = {
            "score": model.attention_score.replace("_", " "),
            "d_k": str(model.head_widths()[0]),
            "window": str(model.attention_window or "all"),
            PARAMETERS: in_millions(model),
        }
        jobs += trainings
        lines.append(Line(row.name, tuple(job.name for job in trainings), facts))
    return Table(
        "table_attention",
        "Attention with scaled, unscaled and additive scores, for keys of different widths (section 3.2.1 of the "
        "paper), and self-attention that is restricted to a window of positions on either side, or before the position "
        "in the decoder (section 4). Queries and keys initially have unit variance. The deviation is that of the "
        f"scores of one query in the encoder's first layer, before the first update. {recipe.caption()}",
        tuple(jobs),
        tuple(lines),
        _COLUMNS,
        _BLEU,
    )
