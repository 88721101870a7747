"""Checks that training and serving work on your machine, and prints a report as a Markdown table.

The checks use generated text and short training runs, and download nothing:
  devices: training on one device and on all devices has the same losses.
  resume: a training run that is killed and resumed ends with the weights of an uninterrupted run.
  jax: training with TensorFlow and with JAX has the same losses; skipped if JAX is not installed.
  peak: the speed of training as a share of the speed of a large matrix product.
With --serving, the program also compares the translations of a running server with those of launch.translate. The exit
status is 1 if a check fails.

Examples:
    python -m launch.prove
    python -m launch.prove --checks=devices,resume
    python -m launch.prove --checks= --serving=127.0.0.1:8500 --model_dir=saved_models/mine --input=sentences.txt
"""

import functools
import pathlib
import sys
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from absl import flags

from t2t_keras import config as configuration
from t2t_keras.acceptance.report import Result, report
from t2t_keras.acceptance.trainings import DETERMINED, Trainer, TrainingFailedError
from t2t_keras.data.sources.corpora_files import read_lines
from t2t_keras.errors import InputError
from t2t_keras.machine.processes import ProcessDiedError
from t2t_keras.models import presets
from t2t_keras.runs.run import Run, weights_path
from t2t_keras.values import at_least, between

from . import program
from .flag_types import FILE, FOLDER, DEFINE_number, DEFINE_path

if TYPE_CHECKING:
    from t2t_keras.acceptance.training_checks import TrainingChecks

_CHECKS: dict[str, Callable[["TrainingChecks"], Result]] = {
    "devices": lambda checks: checks.devices(),
    "resume": lambda checks: checks.resume(),
    "jax": lambda checks: checks.jax(),
    "peak": lambda checks: checks.peak(),
}
_NAMES = flags.DEFINE_list("checks", list(_CHECKS), f"The checks of training, any of: {', '.join(_CHECKS)}.")
_PRESET = flags.DEFINE_string("preset", "tiny", "The preset for devices, resume and jax.")
_PEAK_PRESET = flags.DEFINE_string("peak_preset", "base", "The preset for peak.")
_UPDATES = DEFINE_number("updates", 20, "Number of updates whose losses are compared.", Annotated[int, at_least(2)])
_TOLERANCE = DEFINE_number(
    "tolerance",
    1e-4,
    "Largest relative difference of two losses; ten times as large for gradient norms.",
    Annotated[float, between(0, 1)],
)
_SET = flags.DEFINE_multi_string(
    "set", [], "Overrides a setting in all training runs: section.field=value; sections: model, train."
)
_SERVING = flags.DEFINE_string("serving", None, "HOST:PORT of the gRPC interface of a running server.")
_SERVED_MODEL = flags.DEFINE_string(
    "served_model", None, "The name of the model on the server; default: the name of the folder --model_dir."
)
_MODEL_DIR = DEFINE_path("model_dir", None, "With --serving: the run or the export that the server serves.", FOLDER)
_INPUT = DEFINE_path("input", None, "With --serving: UTF-8 text to translate, one sentence per line.", FILE)


def main(argv: list[str]) -> None:
    """Runs the checks that the flags name."""
    _check_flags()
    lines = _read_input() if _SERVING.value else []
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    results = _check_training(len(gpus)) if _NAMES.value else []
    if _SERVING.value:
        results.append(_result("serving", lambda: _check_serving(lines)))
    names = [tf.config.experimental.get_device_details(gpu).get("device_name", "GPU") for gpu in gpus]
    program.say(report(results, names))
    if any(result.outcome == "failed" for result in results):
        sys.exit(1)


def _check_flags() -> None:
    """Raises InputError for invalid flags before TensorFlow is imported."""
    for name in _NAMES.value:
        if name not in _CHECKS:
            raise InputError(f"--checks={name}: valid: {', '.join(_CHECKS)}")
    for setting in _SET.value:
        if (name := setting.partition("=")[0].strip()) in DETERMINED:
            raise InputError(f"--set {setting}: the checks determine {name}")
    for name in (_PRESET.value, _PEAK_PRESET.value):
        configuration.override(presets.preset(name), _SET.value)
    serving = (_MODEL_DIR, _INPUT)
    if not _SERVING.value:
        for flag in (*serving, _SERVED_MODEL):
            if flag.present:
                raise InputError(f"--{flag.name} requires --serving")
        if not _NAMES.value:
            raise InputError("give --checks or --serving")
        return
    for flag in serving:
        if not flag.value:
            raise InputError(f"--serving requires --{flag.name}")
    weights_path(Run(_MODEL_DIR.value))


def _check_training(num_gpus: int) -> list[Result]:
    """Runs the checks of training in a temporary folder."""
    from t2t_keras.acceptance.training_checks import TrainingChecks

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(pathlib.Path(folder), [sys.executable, "-m", f"{__package__}.train"], _SET.value)
        sizes = (_PRESET.value, _PEAK_PRESET.value, _UPDATES.value)
        checks = TrainingChecks(trainer, num_gpus, *sizes, _TOLERANCE.value)
        return [_result(name, functools.partial(_CHECKS[name], checks)) for name in dict.fromkeys(_NAMES.value)]


def _result(name: str, check: Callable[[], Result]) -> Result:
    """Runs a check; an error becomes a failed result, so that the report has the results of all other checks."""
    program.warn(f"{name} ...")
    try:
        return check()
    except (TrainingFailedError, ProcessDiedError, InputError) as error:
        return Result(name, "failed", str(error))


def _read_input() -> list[str]:
    lines = list(read_lines(_INPUT.value))
    if not lines:
        raise InputError(f"--input={_INPUT.value} has no lines")
    return lines


def _check_serving(lines: list[str]) -> Result:
    from t2t_keras.acceptance.served_text import compare_with_server
    from t2t_keras.inference.translator import Translator

    path = pathlib.Path(_MODEL_DIR.value)
    name = _SERVED_MODEL.value or (path.parent if path.name.isdigit() else path).resolve().name
    return compare_with_server(_SERVING.value, name, Translator.load(path), lines)


run = program.command(main)
