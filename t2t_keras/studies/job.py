"""The base class of a study's jobs. Each job trains, evaluates or measures something, and has a folder and a record."""

import abc
import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any, ClassVar

from t2t_keras.config import Config

TO_DO = "to do"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job(abc.ABC):
    """One unit of a study's work.

    A job runs in phases. A phase is a function of the job and the study's folder that returns results by name, as JSON
    values. It is given as "module:function", because only the process that runs it imports it.

    Attributes:
        phases: the phases, in order.
        name: name of the job and of its folder within the study's folder, such as "base/seed_1".
        needs: names of the jobs that must be finished first.
        config: the training configuration; None if the job trains nothing.
    """

    phases: ClassVar[tuple[str, ...]]

    name: str
    needs: tuple[str, ...] = ()
    config: Config | None = None

    @abc.abstractmethod
    def settings(self) -> dict[str, Any]:
        """Returns the settings that determine the results, as JSON values, for the record."""

    def changes(self, before: Mapping[str, Any]) -> list[str]:
        """Returns the differences between recorded and current settings, as "name: old -> new"."""
        now = self.settings()
        names = dict.fromkeys((*before, *now))
        return [f"{n}: {before.get(n)!r} -> {now.get(n)!r}" for n in names if before.get(n) != now.get(n)]

    def conflicts(self, folder: pathlib.Path) -> list[str]:
        """Returns the differences, in the format of `changes`, that make the contents of the job's folder unusable."""
        return []

    def progress(self, folder: pathlib.Path) -> str:
        """Describes the progress of a job without a record."""
        return TO_DO
