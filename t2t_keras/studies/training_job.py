"""The jobs of tables that compare models: training runs, and ensembles of them."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from t2t_keras.config import Config, differences
from t2t_keras.machine.files import read_json
from t2t_keras.runs import checkpoints
from t2t_keras.runs.run import Run, lasting_differences
from t2t_keras.studies.job import TO_DO, Job

ORIGIN = "begins_from.json"  # settings of the training that provided a run's initial weights


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingJob(Job):
    """Trains a model, averages checkpoints and evaluates the average. The job's folder is the directory of the run.

    Attributes:
        config: resolved configuration. The last `train.keep_checkpoints` checkpoints are averaged, or those around the
            best one if `train.patience` is set.
        data_dir: directory of the prepared data, absolute or relative to the study's folder.
        vocabulary: checksum of the vocabulary.
        text: checksum that identifies the text of all splits; "" if it is unknown.
        begins_from: the training whose averaged weights are the initial weights; None means random initialization.
    """

    phases: ClassVar[tuple[str, ...]] = ("t2t_keras.studies.phases:train", "t2t_keras.studies.phases:evaluate")

    config: Config
    data_dir: str
    vocabulary: str
    text: str = ""
    begins_from: "TrainingJob | None" = None

    @property
    def average(self) -> str:
        """Name of the averaged checkpoint."""
        train = self.config.train
        return f"averaged_{'around_best' if train.patience else 'last'}{train.keep_checkpoints}"

    def settings(self) -> dict[str, Any]:
        settings = {"config": self.config.to_dict(), "vocabulary": self.vocabulary, "text": self.text}
        first = self.begins_from
        return settings if first is None else {**settings, "begins_from": {first.name: first.settings()}}

    def changes(self, before: Mapping[str, Any]) -> list[str]:
        result = differences(Config.from_dict(before["config"]), self.config)
        if before["vocabulary"] != self.vocabulary:
            result.append(f"vocabulary: {before['vocabulary']:.12}... -> {self.vocabulary:.12}...")
        if before.get("text") and self.text and before["text"] != self.text:  # older records lack it
            result.append(f"text: {before['text']:.12}... -> {self.text:.12}...")
        first = [] if self.begins_from is None else [self.begins_from]
        return result + changes_of_others("begins_from", before.get("begins_from", {}), first)

    def conflicts(self, folder: pathlib.Path) -> list[str]:
        """Returns changes that a run with checkpoints does not allow, and surplus updates; see `Job.conflicts`."""
        run = Run(folder)
        steps = checkpoints.steps(run.checkpoints_path)
        if not run.exists or not steps:
            return []
        max_steps = self.config.train.max_steps
        surplus = [f"train.max_steps: {steps[-1]} made -> {max_steps}"] if steps[-1] > max_steps else []
        origin = run.init_from.get("model_dir", "")
        first = "" if self.begins_from is None else self.begins_from.name
        changes = [f"begins_from: {origin or 'none'} -> {first or 'none'}"] if bool(origin) != bool(first) else []
        stored_count, average_count = run.config.train.keep_checkpoints, self.config.train.keep_checkpoints
        if steps[-1] == max_steps and stored_count < average_count:
            changes.append(f"train.keep_checkpoints: {stored_count} -> {average_count}")
        return [*lasting_differences(run.config, self.config), *surplus, *changes, *self._origin_changes(folder)]

    def _origin_changes(self, folder: pathlib.Path) -> list[str]:
        """Returns changes to the training that provided the initial weights, except those of its decoding settings."""
        if self.begins_from is None or (record := read_json(folder / ORIGIN)) is None:
            return []
        changes = changes_of_others("begins_from", record, [self.begins_from])
        return [change for change in changes if f"{self.begins_from.name}: decode." not in change]

    def progress(self, folder: pathlib.Path) -> str:
        steps = checkpoints.steps(Run(folder).checkpoints_path)
        if not steps:
            return TO_DO
        max_steps = self.config.train.max_steps
        return "not evaluated" if steps[-1] >= max_steps else f"{steps[-1]:,} of {max_steps:,} updates"


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnsembleJob(Job):
    """Evaluates several trainings as one ensemble.

    Attributes:
        members: the trainings. The first one provides the data and the decoding settings.
    """

    phases: ClassVar[tuple[str, ...]] = ("t2t_keras.studies.phases:evaluate_ensemble",)

    members: tuple[TrainingJob, ...]

    def settings(self) -> dict[str, Any]:
        return {"members": {member.name: member.settings() for member in self.members}}

    def changes(self, before: Mapping[str, Any]) -> list[str]:
        return changes_of_others("members", before["members"], self.members)


def changes_of_others(role: str, before: Mapping[str, Any], trainings: Sequence[TrainingJob]) -> list[str]:
    """Returns the differences between the recorded and the current settings of the trainings that a job uses.

    Args:
        role: relation of the trainings to the job, for the messages: "begins_from" or "members".
        before: recorded settings of the trainings, by name.
        trainings: the current trainings.
    """
    names = [training.name for training in trainings]
    if list(before) != names:
        return [f"{role}: {', '.join(before) or 'none'} -> {', '.join(names) or 'none'}"]
    changes_by_name = [(training.name, training.changes(before[training.name])) for training in trainings]
    return [f"{name}: {change}" for name, changes in changes_by_name for change in changes]
