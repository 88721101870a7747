"""Checkpoints of a few small arrays."""

import dataclasses
import pathlib
from typing import Any

import numpy as np

from t2t_keras.runs import checkpoints


def arrays(seed: int, size: int = 12) -> dict[str, Any]:
    """Returns weights whose names are difficult for a file format: with slashes, or equal to arguments of np.savez."""
    generator = np.random.default_rng(seed)
    return {
        "encoder/layer_0/kernel": generator.normal(size=(3, size)).astype(np.float32),
        "file": generator.normal(size=(size,)).astype(np.float32),
        "größe": np.float32(0.25 * seed),
    }


def save(directory, step: int, **changes):
    values = {"weights": arrays(step), "optimizer": {**arrays(step + 1), "iterations": np.int64(step)}}
    return checkpoints.save(directory, step, state={"epoch": 3, "batch": step}, **{**values, **changes})


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def assert_equal(actual, expected):
    assert list(actual) == list(expected)
    for name, array in expected.items():
        assert actual[name].dtype == np.asarray(array).dtype
        np.testing.assert_array_equal(actual[name], array)


def note_validation(directory, step: int, metric: str = "loss", value: float = 1.0) -> None:
    """Adds the record of a validation to the newest checkpoint."""
    newest = checkpoints.steps(directory)[-1]
    state = checkpoints.load(pathlib.Path(directory) / checkpoints.step_name(newest)).state
    record = dataclasses.asdict(checkpoints.ValidationRecord(step, metric, float(value)))
    records = [*state.get(checkpoints.VALIDATIONS, []), record]
    checkpoints.replace_state(directory, newest, {**state, checkpoints.VALIDATIONS: records})
