"""Trainings on four devices of JAX. It is a separate program, since Keras has one backend, and devices must be set up
first.

Usage: KERAS_BACKEND=jax python trainings.py DATA_DIR FOLDER LAST. Resumes the run FOLDER/jax up to step LAST on two
replicas of two devices. Writes FOLDER/uninterrupted and FOLDER/killed, on the same replicas; the latter is resumed as
if killed after step 4 and before it was saved. Writes rejected calls to FOLDER/refusals.json, the end of a program with
unsupported flags to FOLDER/refused_program.json, and FOLDER/steps.json from `split_steps.py`.
"""

import contextlib
import io
import json
import pathlib
import runpy
import shutil
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import keras

from t2t_keras.data.prepare import PreparedData
from t2t_keras.errors import InputError
from t2t_keras.runs.run import Run
from t2t_keras.training.backends import devices_line, make_devices
from tests import programs
from tests.training.on_jax import split_steps
from tests.training.tiny_training import launch_flags, resume, train

REPLICAS = 4
SPLIT: dict[str, Any] = {"replicas": 2, "model_parallel": 2}
WITH_DROPOUT = {
    **{"model": {"dropout_rate": 0.3}, "max_steps": 4, "checkpoint_steps": 2, "static_shapes": True},
    **{"validation_sentences": 5, "best_metric": "bleu"},
}


def refusal(function: Callable, *arguments: Any, **settings: Any) -> str:
    """Returns the message of the error that a call raises."""
    try:
        function(*arguments, **settings)
    except InputError as error:
        return str(error)
    return ""


def refused(path: pathlib.Path, data: PreparedData, devices: Any) -> dict[str, str]:
    """Returns the messages for unsupported calls; `devices` are four replicas."""
    once = {"max_steps": 1, "static_shapes": True}
    with_experts = Run(shutil.copytree(path / "jax", path / "refused_later"))
    return {
        "none": devices_line(devices),
        "static_shapes": refusal(train, path / "refused", data, max_steps=1),
        "strategy": refusal(make_devices, "mirrored"),
        "replicas": refusal(make_devices, "cpu", REPLICAS + 1),
        "search": refusal(resume, with_experts, data, 9, devices, validation_sentences=1),
        "odd devices": refusal(make_devices, "cpu", model_parallel=3),
        "few devices": refusal(make_devices, "cpu", 2, model_parallel=3),
        "no devices": refusal(make_devices, "cpu", model_parallel=0),
        "heads": refusal(train, path / "refused", data, replicas=1, model_parallel=4, **once),
    }


def ended(arguments: list[str]) -> tuple[Any, str]:
    """Returns the exit status of launch.train and its standard error."""
    errors = io.StringIO()
    with mock.patch.object(sys, "argv", ["train", *arguments]), contextlib.redirect_stderr(errors):
        try:
            runpy.run_module("launch.train", run_name="__main__")
        except SystemExit as end:
            return end.code, errors.getvalue()
    return None, errors.getvalue()


def main(data_dir: str, folder: str, last: str) -> None:
    assert keras.backend.backend() == "jax"
    programs.set_quick_mode(True)
    data, path = PreparedData.open(data_dir), pathlib.Path(folder)
    resume(Run(path / "jax"), data, int(last), make_devices("cpu", **SPLIT), decay_steps=0)  # The run continues later.
    (path / "refusals.json").write_text(json.dumps(refused(path, data, make_devices("cpu", REPLICAS))))
    (path / "steps.json").write_text(json.dumps(split_steps.all_numbers()))
    flags = launch_flags(path / "refused", data)
    (path / "refused_program.json").write_text(json.dumps(ended([*flags, "--model_parallel=0"])))
    uninterrupted, killed = path / "uninterrupted", path / "killed"
    assert train(uninterrupted, data, **SPLIT, **WITH_DROPOUT).step == 4
    shutil.copytree(uninterrupted, killed)
    shutil.rmtree(killed / "checkpoints" / "step_00000004")
    assert train(killed, data, **SPLIT, **WITH_DROPOUT).step == 4


if __name__ == "__main__":
    main(*sys.argv[1:])
