"""Runs that were not trained here."""

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from t2t_keras.config import Config
from t2t_keras.machine.files import new_folder
from t2t_keras.runs import checkpoints
from t2t_keras.runs.run import IMPORTED, Run
from t2t_keras.text.tokenizer import Tokenizer

CHECKPOINT = "imported"


def save_imported(
    model_dir: str | os.PathLike[str],
    config: Config,
    tokenizer: Tokenizer,
    weights: Mapping[str, np.ndarray],
    origin: Mapping[str, Any],
) -> None:
    """Writes a run of a model that was trained elsewhere; all programs take it but for training it in place.

    Args:
        model_dir: directory of the run, which is new.
        config: its settings.
        tokenizer: its vocabulary.
        weights: float32 arrays by name.
        origin: where it comes from, as JSON values.

    Raises:
        InputError: there is something in the directory already.
    """
    with new_folder(model_dir) as folder:
        run = Run(folder)
        tokenizer.save(run.vocab_path)
        checkpoints.save_weights(run.checkpoints_path, CHECKPOINT, 0, weights, {IMPORTED: dict(origin)})
        values = {**config.to_dict(), IMPORTED: dict(origin)}
        run.config_path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
