"""How far the scores of attention are spread before anything is trained (section 3.2.1 of the paper)."""

import pathlib
from typing import Any

import keras
import numpy as np

from t2t_keras.config import Config
from t2t_keras.data.prepare import PreparedData
from t2t_keras.inference.translator import Translator
from t2t_keras.models.families import make_model
from t2t_keras.studies.training_job import TrainingJob

_SENTENCES = 100
_SMALLEST = np.finfo(np.float32).tiny


def measure(job: TrainingJob, study_dir: pathlib.Path) -> dict[str, Any]:
    """Measures the scores of fresh weights on validation sentences: "score_deviation"."""
    data = PreparedData.open(job.data_dir)
    sources, references = (lines[:_SENTENCES] for lines in data.text("valid"))
    return {"score_deviation": score_deviation(job.config, data, list(sources), list(references))}


def score_deviation(config: Config, data: PreparedData, sources: list[str], references: list[str]) -> float:
    """The standard deviation of the scores that one query has for all keys in its window, in the encoder's first layer.

    Attention weights are a softmax of the scores, so their logarithms are the scores less a number for each query,
    which has no part in the deviation. The squares of the deviations are averaged over queries and heads.
    """
    keras.utils.set_random_seed(config.train.seed)
    model = make_model(config.model)
    window = getattr(config.model, "attention_window", None)
    variances: list[float] = []
    for explanation in Translator(data.tokenizer, model, config.decode, config.data).explain(sources, references):
        weights = explanation.attention.encoder[0]  # --> [heads, source_len, source_len]
        positions = np.arange(weights.shape[-1])
        distances = np.abs(positions - positions[:, None])
        scores = np.log(np.maximum(weights, _SMALLEST))
        variances += np.var(scores, axis=-1, where=distances <= (window or np.inf)).ravel().tolist()
    return float(np.sqrt(np.mean(variances)))
