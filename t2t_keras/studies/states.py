"""What a study's folder holds of a job, and the record that a finished job leaves there."""

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
        kind: "finished"; "outdated", if it was finished with other settings and can be taken up again; "conflicting",
            if what is there was trained with other settings; or "unfinished".
        text: what to say of it: its progress, or the settings that differ.
        results: of a finished job, by name; else empty.
    """

    kind: Literal["finished", "outdated", "conflicting", "unfinished"]
    text: str
    results: dict[str, Any]

    def in_words(self) -> str:
        """What a table says of a job with this state."""
        prefix = {"outdated": "to be finished again: ", "conflicting": "has other settings: "}
        return prefix.get(self.kind, "") + self.text


def state(job: Job, study_dir: pathlib.Path) -> State:
    """Compares a job with what is in its folder; raises an InputError if its record is damaged."""
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
    """The record in a job's folder: its "settings" and "results"; None if there is none."""

    def checked(record: dict[str, Any]) -> dict[str, Any]:
        if not (isinstance(record["settings"], dict) and isinstance(record["results"], dict)):
            raise TypeError("settings and results must be objects")
        return record

    return read_json(folder / RECORD, checked, "; delete it to have the row finished again")


def write_record(job: Job, study_dir: pathlib.Path, results: dict[str, Any]) -> None:
    """Writes the record of a finished job; raises an OSError if it cannot be written.

    JSON has no infinity: numbers that are not finite become null.
    """
    results = {n: None if isinstance(v, float) and not math.isfinite(v) else v for n, v in results.items()}
    folder = study_dir / job.name
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / RECORD, {"settings": job.settings(), "results": results})
