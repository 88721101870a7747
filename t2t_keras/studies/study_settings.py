"""What a study is made of, and the file that keeps it."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from t2t_keras.errors import InputError
from t2t_keras.machine.files import read_json, write_json

SCALES = ("tiny", "paper")
_FILE = "study.json"


@dataclasses.dataclass(frozen=True)
class StudySettings:
    """The settings of a study, kept in its folder.

    Attributes:
        table: the table that it makes.
        scale: "tiny", models for two cores, or "paper", the paper's sizes.
        data_dir: absolute path of the prepared data; "" if there are none yet.
        steps: updates of the table's first row; None means as many as the table has at this scale, or else its preset.
        seeds: trainings of each row that is trained more than once.
        settings: changes to every row, "section.field=value".
    """

    table: str
    scale: str = "tiny"
    data_dir: str = ""
    steps: int | None = None
    seeds: int = 2
    settings: tuple[str, ...] = ()


def read_settings(study_dir: pathlib.Path, given: Mapping[str, Any]) -> StudySettings:
    """The settings of a study: those that are given, else those in its folder, else the defaults.

    An InputError says that no table is named, that the folder is another table's or scale's, or its file is damaged.
    """

    def made(kept: dict[str, Any]) -> StudySettings:
        return StudySettings(**{**kept, "settings": tuple(kept["settings"])})

    known = read_json(study_dir / _FILE, made, "; delete it and give all flags again")
    if known is None and "table" not in given:
        raise InputError(f"--table must be given to begin a study in {study_dir}")
    for name in ("table", "scale") if known else ():
        if given.get(name, kept := getattr(known, name)) != kept:
            raise InputError(f"{study_dir} holds the study with --{name}={kept}; use another --study_dir")
    found = dataclasses.replace(known or StudySettings(given["table"]), **given)
    return dataclasses.replace(found, data_dir=os.path.abspath(found.data_dir) if found.data_dir else "")


def write_settings(study_dir: pathlib.Path, settings: StudySettings) -> None:
    """Keeps the settings of a study in its folder; raises an OSError if they cannot be written."""
    study_dir.mkdir(parents=True, exist_ok=True)
    write_json(study_dir / _FILE, dataclasses.asdict(settings))
