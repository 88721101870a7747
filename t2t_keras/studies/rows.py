"""The rows of tables that compare models, as data, and the trainings and ensembles that they stand for."""

import dataclasses
import math
from collections.abc import Sequence

from t2t_keras.config import Config, DecodeConfig, TrainConfig, override
from t2t_keras.errors import InputError
from t2t_keras.models import presets
from t2t_keras.studies.data_facts import DataFacts
from t2t_keras.studies.study_settings import StudySettings
from t2t_keras.studies.training_job import EnsembleJob, TrainingJob


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table: a preset with some settings changed.

    Attributes:
        name: folder within the study's, and what `--only` selects.
        preset: name of the preset.
        settings: changes to it, "section.field=value".
        label: what the table calls it; "" means its name.
        is_repeated: whether it is trained once with each seed of the study, instead of once.
        begins_from: name of the row whose training with the same seed it begins with; "" means fresh weights.
    """

    name: str
    preset: str
    settings: tuple[str, ...] = ()
    label: str = ""
    is_repeated: bool = False
    begins_from: str = ""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What all rows of a table have in common.

    Attributes:
        settings: of the study.
        data: facts about the data.
        first: the table's first row, whose updates `settings.steps` counts.
        common: changes to every preset, "section.field=value", before those of a row.
        usual_steps: updates of the first row if the study's settings have none; None means those of its preset.
        patience: validations without an improvement that end a training; checkpoints around the best one are averaged.
            0: trainings make all their updates, and the last checkpoints are averaged.
    """

    settings: StudySettings
    data: DataFacts
    first: Row
    common: tuple[str, ...] = ()
    usual_steps: int | None = None
    patience: int = 0

    @property
    def steps(self) -> int:
        """Updates of the first row."""
        return self.settings.steps or self.usual_steps or self.full_steps

    @property
    def full_steps(self) -> int:
        """Updates of the first row by its preset."""
        return self._full(self.first).train.max_steps

    def config(self, row: Row, seed: int = 1) -> Config:
        """The resolved configuration of a row.

        The search is that of `DecodeConfig` for all rows, unless the study's settings change it. A study with fewer
        updates shortens the warm-up and the time between checkpoints in proportion, and keeps the highest rate.
        """
        _check(self.settings.settings)
        train = _shortened(self._full(row).train, self.steps / self.full_steps)
        # A validation saves a checkpoint, so it takes place where one is saved anyway.
        validation_steps = train.checkpoint_steps * -(-train.max_steps // (_VALIDATIONS * train.checkpoint_steps))
        train = dataclasses.replace(train, seed=seed, patience=self.patience, validation_steps=validation_steps)
        decode = DecodeConfig()
        longer = decode.max_length_offset * self.data.config.tokens_of_a_piece
        decode = dataclasses.replace(decode, max_length_offset=longer)
        config = dataclasses.replace(self._full(row), train=train, decode=decode, data=self.data.config)
        config = override(config, self.settings.settings)
        data = self.data
        model = dataclasses.replace(config.model, vocab_size=data.vocab_size, source_vocab_size=data.source_vocab_size)
        return dataclasses.replace(config, model=model)

    def trainings(self, row: Row, first: Sequence[TrainingJob] = ()) -> tuple[TrainingJob, ...]:
        """One training of a row for each of its seeds; `first` are those of the row that it begins from."""
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
        """What all rows have in common, as sentences."""
        config = self.config(self.first)
        decode, train = config.decode, config.train
        updates = f"{train.max_steps:,} updates of at most {train.tokens_per_batch:,} tokens a side"
        shortened = ""
        if self.steps != self.full_steps:
            change = "shortened" if self.steps < self.full_steps else "lengthened"
            shortened = (
                f" instead of the preset's {self.full_steps:,}; warm-up and checkpoints are {change} in proportion "
                f"(warm-up of {self.first.name}: {train.warmup_steps:,}), and the highest rate is the preset's"
            )
        search = f"a beam of {decode.beam_size}, length penalty {decode.length_penalty:g}"
        average = f"the average of its last {train.keep_checkpoints} checkpoints"
        if self.patience:
            average = (
                f"the average of {train.keep_checkpoints} checkpoints around the one with the best validation loss; a "
                f"training ends after {self.patience} validations, every {train.validation_steps} updates, without a "
                "better one"
            )
        return (
            f"Row {self.first.name}: {updates}{shortened}; {average}, {search}. {self.data_caption()} Rows with "
            "several seeds: the mean, with the range in brackets."
        )

    def data_caption(self) -> str:
        """The data, and what the study sets for every row, as sentences."""
        data = self.data.config
        text = (
            f"{data.corpus}, {data.source_language} to {data.target_language}, {self.data.pairs:,} pairs, a vocabulary "
            f"of {self.data.vocab_size:,}"
        )
        changes = f" All rows have {', '.join(self.settings.settings)}." if self.settings.settings else ""
        return f"Data: {text if self.data.vocabulary else 'none yet'}.{changes}"

    def _full(self, row: Row) -> Config:
        return override(presets.preset(row.preset), [*self.common, *row.settings])


_DECIDED = ("model.vocab_size", "model.source_vocab_size", "model.family", "train.seed")
_VALIDATIONS = 10  # in a training


def ensemble(row: Row, members: Sequence[TrainingJob]) -> EnsembleJob:
    """The trainings of a row as one model."""
    return EnsembleJob(
        name=f"{row.name}/ensemble", needs=tuple(member.name for member in members), members=tuple(members)
    )


def _check(settings: Sequence[str]) -> None:
    """Refuses settings of a study that its data or its rows decide."""
    for setting in settings:
        name = setting.partition("=")[0].strip()
        if name.startswith("data.") or name in _DECIDED:
            raise InputError(f"--set {setting}: in a study, {name} is decided by its data and its rows")


def _shortened(train: TrainConfig, share: float) -> TrainConfig:
    """A share of the updates, with the schedule and the checkpoints in the same proportions, and the same peak rate."""
    warmup_steps = _part(train.warmup_steps, share)
    scale = train.learning_rate_scale
    if train.schedule == "paper":  # its highest rate is learning_rate_scale * (d_model * warmup_steps)^-0.5
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
