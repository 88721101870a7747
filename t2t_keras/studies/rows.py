"""Defines the rows of tables that compare models, and creates their training and ensemble jobs."""

import dataclasses
import math
from collections.abc import Sequence

from t2t_keras.config import Config, DecodeConfig, ModelConfig, TrainConfig, override
from t2t_keras.errors import InputError
from t2t_keras.models import presets
from t2t_keras.studies.data_facts import DataFacts
from t2t_keras.studies.study_settings import StudySettings
from t2t_keras.studies.training_job import EnsembleJob, TrainingJob
from t2t_keras.training.new_config import search_of_task

PARAMETERS = "params ×10^6"  # heading of the column of `in_millions`


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table: a preset with some settings changed.

    Attributes:
        name: name of the row for `--only`, and of its folder within the study's folder.
        preset: name of the preset.
        settings: changes to the preset, "section.field=value".
        label: name of the row in the table; "" means `name`.
        is_repeated: whether the row is trained with every seed of the study, instead of only once.
        begins_from: name of the row that provides the initial weights, from the same seed; "" means random
            initialization.
    """

    name: str
    preset: str
    settings: tuple[str, ...] = ()
    label: str = ""
    is_repeated: bool = False
    begins_from: str = ""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Settings that all rows of a table share.

    Attributes:
        settings: settings of the study.
        data: facts about the data.
        first: first row of the table; `settings.steps` is the number of its updates.
        common: changes to every preset, "section.field=value", applied before those of a row.
        usual_steps: default number of updates of the first row; None means that of its preset.
        patience: number of validations without improvement after which training ends; the checkpoints around the best
            one are averaged. 0 disables early stopping, and the last checkpoints are averaged.
    """

    settings: StudySettings
    data: DataFacts
    first: Row
    common: tuple[str, ...] = ()
    usual_steps: int | None = None
    patience: int = 0

    @property
    def steps(self) -> int:
        """Number of updates of the first row."""
        return self.settings.steps or self.usual_steps or self.full_steps

    @property
    def full_steps(self) -> int:
        """Number of updates of the first row in its preset."""
        return self._full(self.first).train.max_steps

    def config(self, row: Row, seed: int = 1) -> Config:
        """Returns the resolved configuration of a row.

        All rows use the default `DecodeConfig` with the search settings of the task, and a larger `max_length_offset`
        for character and byte vocabularies, unless the study's settings change it. If the study has fewer or more
        updates than the preset, the schedule and the checkpoint interval are scaled in proportion, and the peak
        learning rate is unchanged.
        """
        _check(self.settings.settings)
        train = _shorten(self._full(row).train, self.steps / self.full_steps)
        # Every validation saves a checkpoint, so validations are placed where one is saved anyway.
        validation_steps = train.checkpoint_steps * -(-train.max_steps // (_VALIDATIONS * train.checkpoint_steps))
        train = dataclasses.replace(train, seed=seed, patience=self.patience, validation_steps=validation_steps)
        decode = search_of_task(DecodeConfig(), self.data.config)
        config = dataclasses.replace(self._full(row), train=train, decode=decode, data=self.data.config)
        config = override(config, self.settings.settings)
        data = self.data
        model = dataclasses.replace(config.model, vocab_size=data.vocab_size, source_vocab_size=data.source_vocab_size)
        return dataclasses.replace(config, model=model)

    def trainings(self, row: Row, first: Sequence[TrainingJob] = ()) -> tuple[TrainingJob, ...]:
        """Returns the training jobs of a row, one per seed.

        Args:
            row: the row.
            first: training jobs of the row that provides the initial weights, if `row.begins_from` is set.
        """
        jobs = []
        for number in range(self.settings.seeds if row.is_repeated else 1):
            begins_from = first[number] if row.begins_from else None
            jobs.append(
                TrainingJob(
                    name=f"{row.name}/seed_{number + 1}",
                    needs=(begins_from.name,) if begins_from else (),
                    config=self.config(row, number + 1),
                    data_dir=self.data.directory,
                    vocabulary=self.data.vocabulary,
                    text=self.data.text,
                    begins_from=begins_from,
                )
            )
        return tuple(jobs)

    def caption(self) -> str:
        """Describes in sentences what all rows have in common."""
        config = self.config(self.first)
        decode, train = config.decode, config.train
        updates = f"{train.max_steps:,} updates of at most {train.tokens_per_batch:,} tokens per side"
        comparison = ""
        if self.steps != self.full_steps:
            change = "shortened" if self.steps < self.full_steps else "lengthened"
            comparison = (
                f" instead of the preset's {self.full_steps:,}; warm-up and checkpoints are {change} in proportion "
                f"(warm-up of {self.first.name}: {train.warmup_steps:,}), and the highest rate is the preset's"
            )
        search = f"a beam of {decode.beam_size}, length penalty {decode.length_penalty:g}"
        average = f"the average of its last {train.keep_checkpoints} checkpoints"
        if train.patience:
            average = (
                f"the average of {train.keep_checkpoints} checkpoints around the one with the best validation loss; "
                f"training stops after {train.patience} validations, one every {train.validation_steps} updates, "
                "without improvement"
            )
        return (
            f"Row {self.first.name}: {updates}{comparison}; {average}, {search}. {self.data_caption()} "
            "Rows with several seeds show the mean, with the range in brackets."
        )

    def data_caption(self) -> str:
        """Describes in sentences the data and the settings that the study changes for all rows."""
        data = self.data.config
        text = (
            f"{data.corpus}, {data.source_language} to {data.target_language}, {self.data.pairs:,} pairs, a vocabulary "
            f"of {self.data.vocab_size:,}"
        )
        changes = f" All rows have {', '.join(self.settings.settings)}." if self.settings.settings else ""
        return f"Data: {text if self.data.vocabulary else 'none yet'}.{changes}"

    def _full(self, row: Row) -> Config:
        return override(presets.preset(row.preset), [*self.common, *row.settings])


_DERIVED_SETTINGS = ("model.vocab_size", "model.source_vocab_size", "model.family", "train.seed")
_VALIDATIONS = 10  # per training, at most


def in_millions(model: ModelConfig, num_members: int = 1) -> str:
    """Formats the number of parameters of a model, or of an ensemble of such models, in millions."""
    return f"{num_members * sum(model.parameter_counts().values()) / 1e6:.2f}"


def ensemble(row: Row, members: Sequence[TrainingJob]) -> EnsembleJob:
    """Returns the job that evaluates the trainings of a row as one ensemble."""
    return EnsembleJob(
        name=f"{row.name}/ensemble", needs=tuple(member.name for member in members), members=tuple(members)
    )


def _check(settings: Sequence[str]) -> None:
    """Raises an InputError for settings that a study's data or rows determine."""
    for setting in settings:
        name = setting.partition("=")[0].strip()
        if name.startswith("data.") or name in _DERIVED_SETTINGS:
            raise InputError(f"--set {setting}: in a study, the data and the rows determine {name}")


def _shorten(train: TrainConfig, share: float) -> TrainConfig:
    """Scales the updates, the schedule and the checkpoint interval by `share`; the peak learning rate is unchanged."""
    warmup_steps = _part(train.warmup_steps, share)
    scale = train.learning_rate_scale
    if train.schedule == "paper":  # its peak rate is learning_rate_scale * (d_model * warmup_steps)^-0.5
        scale *= math.sqrt(warmup_steps / train.warmup_steps)
    return dataclasses.replace(
        train,
        max_steps=_part(train.max_steps, share),
        warmup_steps=warmup_steps,
        hold_steps=round(train.hold_steps * share),
        decay_steps=round(train.decay_steps * share),
        learning_rate_scale=scale,
        checkpoint_steps=_part(train.checkpoint_steps, share),
    )


def _part(steps: int, share: float) -> int:
    return max(1, round(steps * share))
