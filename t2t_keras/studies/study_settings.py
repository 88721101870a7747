"""The settings of a study, and the file that stores them."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from t2t_keras.errors import InputError
from t2t_keras.machine.files import read_json, write_json

SCALES = ("tiny", "paper")
FILES = ("train_source", "train_target", "valid_source", "valid_target")  # names of `StudySettings.files`
_FILE = "study.json"


@dataclasses.dataclass(frozen=True)
class StudySettings:
    """The settings of a study, stored in its folder.

    Attributes:
        table: name of the table.
        scale: "tiny" (models for two cores) or "paper" (the paper's sizes).
        data_dir: absolute path of the prepared data; "" if there are none yet.
        steps: number of updates of the table's first row; None means the table's number at this scale or, if it has
            none, that of the row's preset.
        seeds: number of trainings of each row that is trained with several seeds.
        settings: changes to every row, "section.field=value".
        files: absolute paths of the training source, the training target, the validation source and the validation
            target, for a table whose rows prepare their own text; empty if there are none yet.
        winner: name of the row whose text the last rows use, for such a table; "" means the table's default.
    """

    table: str
    scale: str = "tiny"
    data_dir: str = ""
    steps: int | None = None
    seeds: int = 2
    settings: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    winner: str = ""


def read_settings(study_dir: pathlib.Path, overrides: Mapping[str, Any]) -> StudySettings:
    """Returns the settings of a study: `overrides`, completed from the study's folder and the defaults.

    Args:
        study_dir: folder of the study, which need not exist.
        overrides: settings by name; they take precedence.

    Raises:
        InputError: a new study names no table, the folder belongs to a different table or scale, or its file is
            damaged.
    """

    def parse(values: dict[str, Any]) -> StudySettings:
        changes = tuple(values["settings"])
        return StudySettings(**{**values, "settings": changes, "files": tuple(values.get("files", ()))})

    stored = read_json(study_dir / _FILE, parse, "; delete it and give all flags again")
    if stored is None and "table" not in overrides:
        raise InputError(f"--table must be given to start a study in {study_dir}")
    for name in ("table", "scale") if stored else ():
        if overrides.get(name, value := getattr(stored, name)) != value:
            raise InputError(f"{study_dir} holds the study with --{name}={value}; use a different --study_dir")
    settings = dataclasses.replace(stored or StudySettings(overrides["table"]), **overrides)
    files = tuple(map(os.path.abspath, settings.files))
    data_dir = os.path.abspath(settings.data_dir) if settings.data_dir else ""
    return dataclasses.replace(settings, data_dir=data_dir, files=files)


def write_settings(study_dir: pathlib.Path, settings: StudySettings) -> None:
    """Writes the settings to a study's folder.

    Raises:
        OSError: the settings cannot be written.
    """
    study_dir.mkdir(parents=True, exist_ok=True)
    write_json(study_dir / _FILE, dataclasses.asdict(settings))
