"""Reproduces a table of the paper: trains and evaluates each of its rows on prepared data, and writes the table.

Every row is a run in the study's folder. After an interruption, run the same command to resume. Finished rows are
reused.

Examples:
    python -m launch.study --table=3 --data_dir=data/mine --study_dir=runs/table3 --plan
    python -m launch.study --table=3 --data_dir=data/mine --study_dir=runs/table3 --only=base,a_h1
    python -m launch.study --study_dir=runs/table3 --print
    python -m launch.study --table=recipes --train_source=train.en --train_target=train.de --valid_source=valid.en \\
        --valid_target=valid.de --study_dir=runs/recipes
"""

import dataclasses
import pathlib
import re
import sys

from absl import flags

from t2t_keras.errors import InputError
from t2t_keras.machine.notices import without_notices
from t2t_keras.machine.standard_error import tell
from t2t_keras.planning.forecast import KINDS, USUAL_UTILISATION, Devices
from t2t_keras.studies.paper_tables import TABLES
from t2t_keras.studies.plan import plan, seconds_here, seconds_on
from t2t_keras.studies.recipes import DEFAULT_WINNER
from t2t_keras.studies.study import Study
from t2t_keras.studies.study_settings import FILES, SCALES, read_settings
from t2t_keras.values import NonNegativeInt, PositiveInt, Share

from . import program
from .flag_groups import extensions
from .flag_types import FILE, FOLDER, NEW_FOLDER, DEFINE_number, DEFINE_path

_STUDY_DIR = DEFINE_path("study_dir", None, "The folder of a new or existing study.", NEW_FOLDER, required=True)
_TABLE = flags.DEFINE_string("table", None, f"The table: {', '.join(TABLES)}; default: that of the existing study.")
_SCALE = flags.DEFINE_enum("scale", None, SCALES, "Models for two cores (the default), or with the paper's sizes.")
_DATA_DIR = DEFINE_path("data_dir", None, "Prepared data; default: the data of the existing study.", FOLDER)
_FILES = {
    name: DEFINE_path(name, None, "With --table=recipes: a text file whose name ends with its language.", FILE)
    for name in FILES
}
_WINNER = flags.DEFINE_string(
    "winner", None, f"With --table=recipes: the row whose text settings the last rows use; default: {DEFAULT_WINNER}."
)
_STEPS = DEFINE_number("steps", None, "Updates of the first row; the other rows change in proportion.", PositiveInt)
_SEEDS = DEFINE_number("seeds", None, "Number of seeds of the rows that have several; default: 2.", PositiveInt)
_SET = flags.DEFINE_multi_string("set", [], "Overrides a setting in every row: section.field=value.")
_ONLY = flags.DEFINE_list("only", [], "Names of rows, separated by commas; default: all.")
_SHARD = flags.DEFINE_string("shard", "1/1", "I/N: the I-th of N parts of the rows, for N processes or machines.")
_PLAN = flags.DEFINE_bool("plan", False, "Print the cost of each row, and train nothing.")
_PRINT = flags.DEFINE_bool("print", False, "Print the table of the finished rows, and train nothing.")
_ROWS = flags.DEFINE_bool("rows", False, "Print the names of the rows, and train nothing.")
_DEVICES = DEFINE_number("devices", 0, "With --plan: number of devices per row; 0: this machine.", NonNegativeInt)
_DEVICE = flags.DEFINE_enum("device", "a100", KINDS, "With --plan and --devices: the kind of the devices.")
_UTILISATION = DEFINE_number(
    "utilisation", None, "With --plan: share of the peak; default: 0.2 of --devices, 0.5 of this machine.", Share
)
flags.adopt_module_key_flags(extensions)


def main(argv: list[str]) -> None:
    """Makes the table, or prints the information that the flags request."""
    _check_flags()
    overrides = {"table": _TABLE.value, "scale": _SCALE.value, "data_dir": _DATA_DIR.value}
    overrides |= {"steps": _STEPS.value, "seeds": _SEEDS.value, "settings": tuple(_SET.value) or None}
    overrides |= {"files": _files(), "winner": _WINNER.value}
    study_dir = pathlib.Path(_STUDY_DIR.value)
    study = Study(study_dir, read_settings(study_dir, {k: v for k, v in overrides.items() if v is not None}))
    if _ROWS.value:
        print(*(line.name for line in study.table.lines), sep="\n")
    elif _PLAN.value:
        print(_plan(study))
    elif _PRINT.value:
        print(study.table.markdown(study.states()), end="")
    else:
        _perform(study)


def _files() -> tuple[str, ...] | None:
    """Returns the text files of the flags, or None if there are none."""
    files = [flag.value for flag in _FILES.values() if flag.value]
    if files and len(files) < len(_FILES):
        missing = [f"--{name}" for name, flag in _FILES.items() if not flag.value]
        raise InputError(f"{' and '.join(missing)} must also be given")
    return tuple(files) or None


def _check_flags() -> None:
    """Raises InputError for flags that would have no effect."""
    mode_flags = [f"--{flag.name}" for flag in (_ROWS, _PLAN, _PRINT) if flag.value]
    if len(mode_flags) > 1:
        raise InputError(f"{' and '.join(mode_flags)} cannot be combined")
    for flag in (_DEVICES, _DEVICE, _UTILISATION):
        if flag.present and not _PLAN.value:
            raise InputError(f"--{flag.name} requires --plan")
    if _DEVICE.present and not _DEVICES.value:
        raise InputError("--device requires --devices")
    for flag in (_ONLY, _SHARD):
        if flag.present and (_ROWS.value or _PRINT.value):
            raise InputError(f"--{flag.name} cannot be combined with {mode_flags[0]}, which concerns all rows")


def _plan(study: Study) -> str:
    """Returns the plan, with a sentence on how hours are estimated."""
    states, length = study.states(), study.data.length
    names = set(study.selected(_ONLY.value, _shard()))
    lines = [line for line in study.table.lines if names & {*line.jobs} or not (line.jobs or _ONLY.value)]
    table = dataclasses.replace(study.table, lines=tuple(lines))
    if _DEVICES.value:
        share = _UTILISATION.value or USUAL_UTILISATION
        devices = Devices(_DEVICE.value, _DEVICES.value, utilisation=share, **KINDS[_DEVICE.value])
        seconds = seconds_on(devices, length)
        source = f"Hours assume {devices.count} x {devices.name} per row, at {devices.utilisation:.0%} of their peak."
    else:
        with without_notices():
            seconds, source = seconds_here(study.table, states, study.study_dir, _UTILISATION.value or 0.5, length)
    return f"{plan(table, states, length, seconds)} {source}"


def _shard() -> tuple[int, int]:
    """Returns the number of the part of the rows, and the number of parts."""
    numbers = re.fullmatch(r"(\d+)/(\d+)", _SHARD.value)
    if not numbers or not 1 <= int(numbers[1]) <= int(numbers[2]):
        raise InputError(f"--shard={_SHARD.value}: expected I/N with I from 1 to N, such as 2/8")
    return int(numbers[1]), int(numbers[2])


def _perform(study: Study) -> None:
    """Performs the selected rows; the exit status reports the outcome."""
    names = study.selected(_ONLY.value, _shard())
    outcome = study.perform(names, tell)
    program.say(study.table.markdown(study.states()).rstrip("\n"))
    if outcome.signal:
        sys.exit(128 + outcome.signal)
    is_part = _SHARD.value != "1/1"  # waiting rows then belong to other parts
    if outcome.failed or (outcome.waiting and not outcome.busy and not is_part):
        raise InputError(f"not finished: {', '.join((*outcome.failed, *outcome.waiting))}")


run = program.command(main)
