"""A job of a study: what one process trains, evaluates or measures, with a folder and a record of its own."""

import abc
import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any, ClassVar

from t2t_keras.config import Config

MISSING = "missing"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job(abc.ABC):
    """One unit of a study's work.

    A phase is a function of the job and the study's folder, named "module:function", because it is imported by the
    process that runs it alone. It returns results by name, as JSON values.

    Attributes:
        name: folder within the study's, such as "base/seed_1".
        needs: names of the jobs that must be finished before.
        config: the configuration that it trains; None if it trains nothing.
    """

    phases: ClassVar[tuple[str, ...]]

    name: str
    needs: tuple[str, ...] = ()
    config: Config | None = None

    @abc.abstractmethod
    def settings(self) -> dict[str, Any]:
        """What decides the results, as JSON values; kept in the record."""

    def changes(self, before: Mapping[str, Any]) -> list[str]:
        """The differences between recorded settings and those of now, as "name: old -> new"."""
        now = self.settings()
        names = dict.fromkeys((*before, *now))
        return [f"{n}: {before.get(n)!r} -> {now.get(n)!r}" for n in names if before.get(n) != now.get(n)]

    def conflicts(self, folder: pathlib.Path) -> list[str]:
        """The differences, in the form of `changes`, for which what is in the job's folder is of no use any more."""
        return []

    def progress(self, folder: pathlib.Path) -> str:
        """How far a job is that has no record."""
        return MISSING
