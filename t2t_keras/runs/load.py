"""Loads models and weights of runs."""

import os
import pathlib
from typing import NamedTuple

from t2t_keras.config import Config
from t2t_keras.errors import InputError
from t2t_keras.models.contract import SequenceModel
from t2t_keras.models.families import make_model
from t2t_keras.models.weights import assign_weights
from t2t_keras.runs import checkpoints
from t2t_keras.runs.exported import exported_weights
from t2t_keras.runs.run import Run


class RunCheckpoint(NamedTuple):
    """A run, and which of its checkpoints.

    Attributes:
        model_dir: directory of the run or of an export.
        checkpoint: "latest", "best", a step or another name for `checkpoints.resolve`; must be None for an export.
    """

    model_dir: str | os.PathLike[str]
    checkpoint: str | None = None

    @classmethod
    def parse(cls, text: str) -> "RunCheckpoint":
        """Parses "MODEL_DIR" or "MODEL_DIR@CHECKPOINT"; a directory with the whole name takes precedence."""
        if text and ("@" not in text or os.path.isdir(text)):
            return cls(text)
        model_dir, _, checkpoint = text.rpartition("@")
        if not model_dir or not checkpoint:
            raise InputError(f"{text!r} names no run: expected MODEL_DIR or MODEL_DIR@CHECKPOINT")
        return cls(model_dir, checkpoint)


def load_model(
    model_dir: str | os.PathLike[str], checkpoint: str | None = None
) -> tuple[SequenceModel, Config, pathlib.Path]:
    """Loads the model of a run or of an export; returns it with its configuration and the path of its vocabulary.

    The arguments are those of `RunCheckpoint`.

    Raises:
        InputError: there is no run or no such checkpoint (lists those there are), or its weights are another model's.
    """
    run = Run(model_dir)
    config = run.config
    model = make_model(config.model)
    assign_weights(model, load_weights(weights_path(run, checkpoint)))
    return model, config, run.vocab_path


def weights_path(run: Run, checkpoint: str | None = None) -> pathlib.Path:
    """The directory of a run's checkpoint, for `load_weights`; of an export, that of its version.

    Raises:
        InputError: there is no such checkpoint (lists those there are), or an export has none to choose from.
    """
    if not run.exported:
        return checkpoints.resolve(run.checkpoints_path, checkpoint)
    if checkpoint is not None:
        raise InputError(f"{run.path} is an exported model: it has no checkpoint {checkpoint!r} to choose")
    return run.exported


def load_weights(path: pathlib.Path) -> dict:
    """The weights to translate with, float32 arrays by name, of a `weights_path`: averages if training kept them."""
    if Run(path).exported:
        return exported_weights(path)
    saved = checkpoints.load(path, weights_only=True)
    return saved.weights if saved.ema is None else saved.ema
