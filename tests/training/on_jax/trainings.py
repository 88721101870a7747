"""Trainings on four devices of JAX; a program of its own, since Keras has one backend and devices come first.

Usage: KERAS_BACKEND=jax python trainings.py DATA_DIR FOLDER LAST. Goes on with the run FOLDER/jax to step LAST, on two
replicas of two devices. Leaves FOLDER/uninterrupted and FOLDER/killed, on such replicas too, the latter as if killed
when step 4 was made but not saved, and started again; what is refused, in FOLDER/refusals.json; how the program ends
that is asked for what is not offered, in FOLDER/refused_program.json; and FOLDER/steps.json, of `split_steps.py`.
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
from tests.training.tiny_training import go_on, launch_flags, train

REPLICAS = 4
SPLIT: dict[str, Any] = {"replicas": 2, "model_parallel": 2}
WITH_DROPOUT = {
    **{"model": {"dropout_rate": 0.3}, "max_steps": 4, "checkpoint_steps": 2, "static_shapes": True},
    **{"validation_sentences": 5, "best_metric": "bleu"},
}


def refusal(function: Callable, *arguments: Any, **settings: Any) -> str:
    """The message of the error that a call raises."""
    try:
        function(*arguments, **settings)
    except InputError as error:
        return str(error)
    return ""


def refused(path: pathlib.Path, data: PreparedData, devices: Any) -> dict[str, str]:
    """What is said to each of the calls that ask for what is not offered; `devices` are four replicas."""
    once = {"max_steps": 1, "static_shapes": True}
    with_experts = Run(shutil.copytree(path / "jax", path / "refused_later"))
    return {
        "none": devices_line(devices),
        "static_shapes": refusal(train, path / "refused", data, max_steps=1),
        "strategy": refusal(make_devices, "mirrored"),
        "replicas": refusal(make_devices, "cpu", REPLICAS + 1),
        "search": refusal(go_on, with_experts, data, 9, devices, validation_sentences=1),
        "odd devices": refusal(make_devices, "cpu", model_parallel=3),
        "few devices": refusal(make_devices, "cpu", 2, model_parallel=3),
        "no devices": refusal(make_devices, "cpu", model_parallel=0),
        "heads": refusal(train, path / "refused", data, replicas=1, model_parallel=4, **once),
    }


def ended(arguments: list[str]) -> tuple[Any, str]:
    """The exit status of launch.train, and what it wrote to standard error."""
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
    go_on(Run(path / "jax"), data, int(last), make_devices("cpu", **SPLIT), decay_steps=0)  # not the end of the run
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
