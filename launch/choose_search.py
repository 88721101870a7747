"""Chooses a run's average of checkpoints, beam size and length penalty on its validation set, and stores them.

The program first compares averages of the newest checkpoints with the run's current weights, using the run's search
settings. With the best weights, it then compares the combinations of beams and length penalties. It prints a table, and
writes the best settings to the run's config.json, so that all programs use them by default.

Example:
    python -m launch.choose_search --model_dir=runs/mine --beam_sizes=4,8 --length_penalties=0.6,1.0,average
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from absl import flags

from t2t_keras.config import DecodeConfig
from t2t_keras.data.prepare import PreparedData
from t2t_keras.errors import InputError
from t2t_keras.machine.notices import without_notices
from t2t_keras.runs.run import Run, weights_path
from t2t_keras.tasks.registry import task
from t2t_keras.values import NonNegativeFloat, PositiveInt, parsed

from . import program
from .flag_groups import extensions
from .flag_types import FOLDER, DEFINE_number, DEFINE_path

if TYPE_CHECKING:
    from t2t_keras.fitting.search_choice import Trial

_MODEL_DIR = DEFINE_path("model_dir", None, "The run's directory.", FOLDER, required=True)
_DATA_DIR = DEFINE_path("data_dir", None, "Prepared data; default: the training data of the run.", FOLDER)
_NUMBERS = tuple[PositiveInt, ...]
_AVERAGES = DEFINE_number(
    "averages", None, "Numbers of newest checkpoints to average; default: 5, 10, 20, if the run has them.", _NUMBERS
)
_BEAM_SIZES = DEFINE_number("beam_sizes", "1,2,4,8", "Beam sizes to compare.", _NUMBERS)
_LENGTH_PENALTIES = flags.DEFINE_list(
    "length_penalties",
    ["0", "0.6", "1", "1.4", "average"],
    "Length penalties to compare: exponents for gnmt, or other values of decode.length_normalization: average, none.",
)
flags.adopt_module_key_flags(extensions)

_NORMALIZATIONS = get_args(get_type_hints(DecodeConfig)["length_normalization"])


def main(argv: list[str]) -> None:
    """Compares the weights and the settings, and stores the best ones."""
    run = Run(_MODEL_DIR.value)
    if run.exported:
        raise InputError(f"--model_dir={run.path} is an exported model; choose the search of its run, then export it")
    config = run.config
    weights_path(run)  # raises before TensorFlow is imported, which takes seconds
    for flag in (_BEAM_SIZES, _LENGTH_PENALTIES):
        if not flag.value:
            raise InputError(f"--{flag.name}= names no value")
    penalties = tuple(map(_penalty, _LENGTH_PENALTIES.value))
    text = PreparedData.open(_DATA_DIR.value or run.data_dir).text("valid")
    from t2t_keras.fitting.search_choice import SearchChoice, SearchGrid

    averages = None if _AVERAGES.value is None else tuple(dict.fromkeys(_AVERAGES.value))
    grid = SearchGrid(averages, tuple(dict.fromkeys(_BEAM_SIZES.value)), penalties)

    def report(trial: "Trial") -> None:
        if len(choice.trials) == 1:
            metric = task(config.data.task).metric.upper()
            program.say(f"{'weights':<15}  beam  length penalty  {metric:>6}  seconds")
        program.say(_line(trial))

    with run.lock(), without_notices():
        choice = SearchChoice(run, text, report)
        best = choice.choose(grid)
    decode = best.decode
    program.say(
        f"chosen: {best.weights}, beam_size={decode.beam_size}, length_penalty={decode.length_penalty:g}, "
        f"length_normalization={decode.length_normalization}; {best.score:.2f} instead of {choice.trials[0].score:.2f}"
    )
    program.say(f"written: {run.config_path}")


def _line(trial: "Trial") -> str:
    decode = trial.decode
    penalty = f"{decode.length_penalty:g}" if decode.length_normalization == "gnmt" else decode.length_normalization
    return f"{trial.weights:<15}  {decode.beam_size:>4}  {penalty:>14}  {trial.score:>6.2f}  {trial.seconds:>7.1f}"


def _penalty(text: str) -> Mapping[str, Any]:
    """Returns the decoding settings for a value of --length_penalties."""
    if text in _NORMALIZATIONS and text != "gnmt":
        return {"length_normalization": text}
    if not re.search(r"\d", text):
        raise InputError(f"--length_penalties: {text!r} is neither a number nor average nor none")
    return {"length_normalization": "gnmt", "length_penalty": parsed("--length_penalties", NonNegativeFloat, text)}


run = program.command(main)
