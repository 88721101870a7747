"""Loads models with the weights of a run."""

import os
import pathlib

from t2t_keras.config import Config
from t2t_keras.errors import InputError
from t2t_keras.models.contract import SequenceModel
from t2t_keras.models.families import make_model
from t2t_keras.models.weights import assign_weights
from t2t_keras.runs import checkpoints
from t2t_keras.runs.exported import exported_weights
from t2t_keras.runs.run import Run


def load_model(
    model_dir: str | os.PathLike[str], checkpoint: str | None = None
) -> tuple[SequenceModel, Config, pathlib.Path]:
    """Loads the model of a run or of an export; returns it with its configuration and the path of its vocabulary.

    Args:
        model_dir: directory of the run or the export.
        checkpoint: "latest", "best", a step or another name for `checkpoints.resolve`; must be None for an export.

    Raises:
        InputError: there is no run or no such checkpoint (lists those there are), or its weights are another model's.
    """
    run = Run(model_dir)
    config = run.config
    model = make_model(config.model)
    if run.exported:
        if checkpoint is not None:
            raise InputError(f"{run.path} is an exported model: it has no checkpoint {checkpoint!r} to choose")
        weights = exported_weights(run.exported)
    else:
        saved = checkpoints.load(checkpoints.resolve(run.checkpoints_path, checkpoint), weights_only=True)
        weights = saved.weights if saved.ema is None else saved.ema
    assign_weights(model, weights)
    return model, config, run.vocab_path
