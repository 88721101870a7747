"""The states of jobs in a study's folder, and the records of finished jobs."""

import math
import pathlib
from typing import Any, Literal, NamedTuple

from t2t_keras.errors import named
from t2t_keras.machine.files import read_json, write_json
from t2t_keras.studies.job import Job

RECORD = "row.json"


class State(NamedTuple):
    """The state of a job.

    Attributes:
        kind: "finished"; "outdated" if the job was finished with different settings and can be continued; "conflicting"
            if the job's folder was trained with different settings and cannot be continued; or "unfinished".
        text: progress of the job, or the settings that differ.
        results: results by name; empty unless the job is finished.
    """

    kind: Literal["finished", "outdated", "conflicting", "unfinished"]
    text: str
    results: dict[str, Any]

    def in_words(self) -> str:
        """Returns the description of the state in tables."""
        prefix = {"outdated": "outdated: ", "conflicting": "has different settings: "}
        return prefix.get(self.kind, "") + self.text


def state(job: Job, study_dir: pathlib.Path) -> State:
    """Returns the state of a job, from the contents of its folder.

    Raises:
        InputError: the job's record is damaged.
    """
    folder = study_dir / job.name
    if conflicts := job.conflicts(folder):
        return State("conflicting", "; ".join(conflicts), {})
    record = read_record(folder)
    if record is None:
        return State("unfinished", job.progress(folder), {})
    with named(folder / RECORD):
        changes = job.changes(record["settings"])
    return State("outdated", "; ".join(changes), {}) if changes else State("finished", "finished", record["results"])


def read_record(folder: pathlib.Path) -> dict[str, Any] | None:
    """Returns the record in a job's folder, with its "settings" and "results"; None if there is none.

    Raises:
        InputError: the record is damaged.
    """

    def checked(record: dict[str, Any]) -> dict[str, Any]:
        if not (isinstance(record["settings"], dict) and isinstance(record["results"], dict)):
            raise TypeError("settings and results must be objects")
        return record

    return read_json(folder / RECORD, checked, "; to finish the row again, delete it")


def write_record(job: Job, study_dir: pathlib.Path, results: dict[str, Any]) -> None:
    """Writes the record of a finished job. Numbers that are not finite become null, because JSON cannot express them.

    Raises:
        OSError: the record cannot be written.
    """
    results = {n: None if isinstance(v, float) and not math.isfinite(v) else v for n, v in results.items()}
    folder = study_dir / job.name
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / RECORD, {"settings": job.settings(), "results": results})
