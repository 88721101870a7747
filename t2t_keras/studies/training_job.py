"""The jobs of tables that compare models: trainings, and ensembles of them."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any, ClassVar

from t2t_keras.config import Config, differences
from t2t_keras.runs import checkpoints
from t2t_keras.runs.run import Run, lasting_differences
from t2t_keras.studies.job import MISSING, Job


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingJob(Job):
    """Trains a run, averages its last checkpoints and evaluates the average; its folder is the run's directory.

    Attributes:
        config: resolved configuration; `train.keep_checkpoints` checkpoints are averaged.
        data_dir: directory of the prepared data.
        vocabulary: checksum of its vocabulary.
    """

    phases: ClassVar[tuple[str, ...]] = ("t2t_keras.studies.phases:train", "t2t_keras.studies.phases:evaluate")

    config: Config
    data_dir: str
    vocabulary: str

    @property
    def average(self) -> str:
        """The name of the average of the run's last checkpoints."""
        return f"averaged_last{self.config.train.keep_checkpoints}"

    def settings(self) -> dict[str, Any]:
        return {"config": self.config.to_dict(), "vocabulary": self.vocabulary}

    def changes(self, before: Mapping[str, Any]) -> list[str]:
        now = {**self.settings(), "config": None}
        others = [name for name in now if name != "config" and before.get(name) != now[name]]
        changed = differences(Config.from_dict(before["config"]), self.config)
        return [*changed, *(f"{name}: {before.get(name)!r} -> {now[name]!r}" for name in others)]

    def conflicts(self, folder: pathlib.Path) -> list[str]:
        """What a run cannot change once it has a checkpoint, and more updates than it is to have."""
        run = Run(folder)
        trained = checkpoints.steps(run.checkpoints_path)
        if not run.exists or not trained:
            return []
        most = self.config.train.max_steps
        too_many = [f"train.max_steps: {trained[-1]} made -> {most}"] if trained[-1] > most else []
        return [*lasting_differences(run.config, self.config), *too_many]

    def progress(self, folder: pathlib.Path) -> str:
        trained = checkpoints.steps(Run(folder).checkpoints_path)
        if not trained:
            return MISSING
        most = self.config.train.max_steps
        return "not evaluated" if trained[-1] >= most else f"{trained[-1]:,} of {most:,} updates"


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnsembleJob(Job):
    """Evaluates several trainings as one ensemble.

    Attributes:
        members: the trainings; data and search are the first one's.
    """

    phases: ClassVar[tuple[str, ...]] = ("t2t_keras.studies.phases:evaluate_ensemble",)

    members: tuple[TrainingJob, ...]

    def settings(self) -> dict[str, Any]:
        return {"members": {member.name: member.settings() for member in self.members}}

    def changes(self, before: Mapping[str, Any]) -> list[str]:
        names = [member.name for member in self.members]
        if list(before["members"]) != names:
            return [f"members: {', '.join(before['members'])} -> {', '.join(names)}"]
        found = [(member.name, member.changes(before["members"][member.name])) for member in self.members]
        return [f"{name}: {change}" for name, changes in found for change in changes]
