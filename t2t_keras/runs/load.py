"""Loads models and weights of runs, and saves models in directories that can be read like runs."""

import os
import pathlib

from keras import ops

from t2t_keras.config import Config
from t2t_keras.errors import InputError, named
from t2t_keras.machine.files import new_folder, write_json
from t2t_keras.models.contract import SequenceModel
from t2t_keras.models.encoder_decoder import EncoderDecoder
from t2t_keras.models.families import make_model
from t2t_keras.models.weights import assign_weights, named_weights
from t2t_keras.runs import checkpoints
from t2t_keras.runs.exported import exported_weights
from t2t_keras.runs.run import IMPORTED, Run, weights_path
from t2t_keras.text.tokenizer import Tokenizer


def load_model(
    model_dir: str | os.PathLike[str], checkpoint: str | None = None, dtype_policy: str = "float32"
) -> tuple[SequenceModel, Config, pathlib.Path]:
    """Loads the model of a run or of an export.

    Args:
        model_dir: see `RunCheckpoint`.
        checkpoint: see `RunCheckpoint`.
        dtype_policy: Keras dtype policy of the model's layers.

    Returns:
        The model, its configuration and the path of its vocabulary.

    Raises:
        InputError: the run or the checkpoint does not exist (lists the existing ones), or the weights do not fit the
            model.
    """
    run = Run(model_dir)
    config = run.config
    model = make_model(config.model, dtype_policy)
    path = weights_path(run, checkpoint)
    weights = load_weights(path)
    with named(path):
        assign_weights(model, weights)
    return model, config, run.vocab_path


def load_weights(path: pathlib.Path) -> dict:
    """Reads the weights to translate with: the moving averages if training kept them.

    Args:
        path: from `weights_path`.

    Returns:
        float32 arrays by name.
    """
    if Run(path).exported:
        return exported_weights(path)
    checkpoint = checkpoints.load(path, weights_only=True)
    averages = checkpoint.ema  # each access reads the file
    return checkpoint.weights if averages is None else averages


def save_model(
    model: EncoderDecoder, folder: str | os.PathLike[str], like: str | os.PathLike[str] | None = None
) -> None:
    """Writes a built model into a new directory that `load_model` reads; see `EncoderDecoder.save_to_preset`."""
    config = Config(model=model.config) if like is None else Run(like).config
    if config.model != model.config:
        raise InputError(f"{like} has a model with different settings than the model to save")
    weights = {name: ops.convert_to_numpy(ops.cast(weight, "float32")) for name, weight in named_weights(model).items()}
    origin = {"format": "keras"} if like is None else {"format": "keras", "like": os.fspath(like)}
    with new_folder(folder) as temporary:
        run = Run(temporary)
        if like is not None:
            Tokenizer.load(Run(like).vocab_path).save(run.vocab_path)
        checkpoints.save_weights(run.checkpoints_path, IMPORTED, 0, weights, {IMPORTED: origin})
        write_json(run.config_path, {**config.to_dict(), IMPORTED: origin})
