"""Recipes for training on small corpora, each compared with a model of the raw text by a paired bootstrap."""

import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import ClassVar

from t2t_keras.config import Config, DataConfig, override
from t2t_keras.data.checksums import checksum
from t2t_keras.errors import InputError
from t2t_keras.models import presets
from t2t_keras.studies.comparison import ComparisonJob
from t2t_keras.studies.data_facts import DataFacts
from t2t_keras.studies.job import Job
from t2t_keras.studies.rows import PARAMETERS, Recipe, Row, in_millions
from t2t_keras.studies.study_settings import FILES, StudySettings
from t2t_keras.studies.table import Column, Line, Table
from t2t_keras.studies.training_job import TrainingJob
from t2t_keras.text.language_codes import language_of_name

_PRESET, _VOCAB_SIZE = "tiny", 8000
_CASE = ("data.final_marks=true", "data.lowercase=source", "data.truecase=true")
_SIZES_4K = ("data.vocab_size=4000", "model.d_model=144", "model.d_ff=288", "train.learning_rate_scale=2.683")
_SIZES_2K = ("data.vocab_size=2000", "model.d_model=160", "model.d_ff=320", "train.learning_rate_scale=2.828")
# The first rows differ in their text and vocabulary, and in the width that gives the same number of parameters.
TEXT_ROWS = (
    Row("base", _PRESET, label="raw text, 8,000 entries", is_repeated=True),
    Row("marks", _PRESET, ("data.final_marks=true",), "final marks as in the source", is_repeated=True),
    Row("case", _PRESET, _CASE, "as marks, sources lowercased, targets truecased", is_repeated=True),
    Row("v4k", _PRESET, (*_CASE, *_SIZES_4K), "as case, 4,000 entries, width 144", is_repeated=True),
    Row(
        "v2k",
        _PRESET,
        (*_CASE, *_SIZES_2K, "train.max_steps=6000", "train.tokens_per_batch=5300"),
        "as case, 2,000 entries, width 160",
        is_repeated=True,
    ),
)
DEFAULT_WINNER = "v4k"

_BLEU = Column("BLEU (dev)", "valid_bleu", "{:.2f}".format)
_COLUMNS = (
    "recipe",
    _BLEU,
    Column("difference", "difference", "{:+.2f}".format),
    Column("p", "p_value", "{:.3f}".format),
    Column("nats per sentence (dev)", "valid_nats_per_sentence", "{:.2f}".format),
    Column("updates", "updates", "{:,.0f}".format, has_range=False),
    Column("hours", "hours", "{:.2f}".format, has_range=False),
    PARAMETERS,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeJob(TrainingJob):
    """A training job that first prepares its text, in the study's folder.

    Attributes:
        data_dir: directory of the prepared data, relative to the study's folder; rows with the same data share it.
        files: paths of the training source, the training target, the validation source and the validation target.
    """

    phases: ClassVar[tuple[str, ...]] = ("t2t_keras.studies.comparison:prepare_text", *TrainingJob.phases)

    files: tuple[str, ...]


def training_rows(winner: Row) -> tuple[Row, ...]:
    """Returns the rows that train with the text settings of `winner` and other settings of training or of the model."""
    train = override(presets.preset(winner.preset), winner.settings).train
    large_batch = ("train.max_steps=4000", "train.tokens_per_batch=8192", "train.checkpoint_steps=50")
    post = ("model.norm_position=post", "model.attention_gain=0.7071")
    half = (
        f"train.max_steps={train.max_steps // 2}",
        f"train.checkpoint_steps={max(train.checkpoint_steps // 2, 1)}",
        *_warm_up(winner, max(train.warmup_steps // 2, 1)),
    )
    changes = {
        "batch": ((*large_batch, *_warm_up(winner, 1000)), f"as {winner.name}, batches of 8,192 tokens"),
        "post": (
            (*large_batch, *_warm_up(winner, 2000), *post),
            "as batch, norms after the residual sums, attention gain 0.71",
        ),
        "drop": (
            ("model.attention_dropout_rate=0.1", "model.relu_dropout_rate=0.1"),
            f"as {winner.name}, dropout in attention and feed-forward networks",
        ),
        "simcut": ((*half, "train.consistency=simcut"), f"as {winner.name}, SimCut, half of the updates"),
        "rdrop": (
            (*half, "train.consistency=rdrop", "train.consistency_weight=2"),
            f"as {winner.name}, R-Drop, half of the updates",
        ),
    }
    return tuple(
        dataclasses.replace(winner, name=name, settings=(*winner.settings, *settings), label=label)
        for name, (settings, label) in changes.items()
    )


def make_table(settings: StudySettings, data: DataFacts) -> Table:
    """Returns the table for a study of recipes.

    Raises:
        InputError: the scale is not "tiny", prepared data are given, or `settings.winner` is not a row of text.
    """
    del data  # each row prepares its own
    by_name = {row.name: row for row in TEXT_ROWS}
    winner = settings.winner or DEFAULT_WINNER
    if winner not in by_name:
        raise InputError(f"--winner={winner} is not a row with text settings; valid: {', '.join(by_name)}")
    if settings.scale != "tiny":
        raise InputError(f"--scale={settings.scale}: --table=recipes has only --scale=tiny")
    return table_of(settings, TEXT_ROWS, training_rows(by_name[winner]), by_name[winner])


def table_of(settings: StudySettings, text_rows: Sequence[Row], other_rows: Sequence[Row], winner: Row) -> Table:
    """Returns a table that compares rows with the first of `text_rows`.

    Args:
        settings: settings of the study.
        text_rows: rows that prepare their own text.
        other_rows: rows that use the text of `winner`.
        winner: one of `text_rows`.
    """
    if settings.data_dir:
        flags = ", ".join(f"--{name}" for name in FILES)
        raise InputError(f"--data_dir: each row of this table prepares its own text; give {flags} instead")
    base, *_ = text_rows
    others = tuple(each for each in settings.settings if not _is_of_data(each))
    trained = dataclasses.replace(settings, settings=others)
    jobs: list[Job] = []
    lines: list[Line] = []
    first: tuple[TrainingJob, ...] = ()
    identity = _text_identity(settings.files)
    for row in (*text_rows, *other_rows):
        facts = _facts(settings, row, (row if row in text_rows else winner).name, identity)
        recipe = Recipe(trained, facts, base)
        trainings = tuple(RecipeJob(**vars(job), files=settings.files) for job in recipe.trainings(row))
        first = first or trainings
        comparisons = [ComparisonJob.of(*pair) for pair in zip(first, trainings, strict=True) if first is not trainings]
        cells = {"recipe": row.label or row.name, PARAMETERS: in_millions(trainings[0].config.model)}
        jobs += [*trainings, *comparisons]
        lines.append(Line(row.name, tuple(job.name for job in (*trainings, *comparisons)), cells))
    changes = f" All rows have {', '.join(settings.settings)}." if settings.settings else ""
    config = Recipe(trained, DataFacts(), base).config(base)
    return Table(
        "recipes",
        "Recipes for small corpora, on validation text: the difference in BLEU from the row "
        f"{base.name}, and p of sacreBLEU's paired bootstrap with 1,000 samples. Row {base.name}: "
        f"{config.train.max_steps:,} updates of at most {config.train.tokens_per_batch:,} tokens per side; the average "
        f"of the last {config.train.keep_checkpoints} checkpoints, a beam of {config.decode.beam_size}, length penalty "
        f"{config.decode.length_penalty:g}. The rows after {text_rows[-1].name} have the text of {winner.name}. "
        f"Rows with several seeds show the mean, with the range in brackets.{changes}",
        tuple(jobs),
        tuple(lines),
        _COLUMNS,
        _BLEU,
        needs_data=False,
        needs_files=True,
    )


def _facts(settings: StudySettings, row: Row, text: str, identity: str) -> DataFacts:
    """Returns the facts about a row's data that are known before the data are prepared in the folder `text`."""
    changes = [each for each in (*row.settings, *settings.settings) if _is_of_data(each)]
    base = Config(data=DataConfig(vocab_size=_VOCAB_SIZE))
    config = override(base, [*_languages(settings.files), *changes]).data
    return DataFacts(f"data/{text}", config, config.vocab_size, text=identity)


def _is_of_data(setting: str) -> bool:
    return setting.strip().startswith("data.")


def _languages(files: Sequence[str]) -> list[str]:
    """Returns the settings of the languages, in whose codes the names of the training files end."""
    changes = []
    for side, path in zip(("source", "target"), files, strict=False):
        language = language_of_name(pathlib.Path(path).name)
        if language is None:
            raise InputError(f"{path}: the name must end with the code of its language, such as train.en")
        changes.append(f"data.{side}_language={language}")
    return changes


def _text_identity(files: Sequence[str]) -> str:
    """Returns checksums of the files; "" if one does not exist, for example on a machine that only prints the table."""
    if not files or not all(pathlib.Path(path).exists() for path in files):
        return ""
    return " ".join(checksum(path)[:12] for path in files)


def _warm_up(row: Row, steps: int) -> tuple[str, str]:
    """Returns the settings that warm up to the highest rate of `row` in the given number of updates."""
    train = override(presets.preset(row.preset), row.settings).train
    scale = train.learning_rate_scale * math.sqrt(steps / train.warmup_steps)
    return f"train.warmup_steps={steps}", f"train.learning_rate_scale={scale:.4g}"
