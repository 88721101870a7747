"""Measures the spread of attention scores before training (section 3.2.1 of the paper)."""

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
    """Measures the "score_deviation" of randomly initialized weights on the first 100 validation sentences."""
    data = PreparedData.open(study_dir / job.data_dir)
    sources, references = (lines[:_SENTENCES] for lines in data.text("valid"))
    return {"score_deviation": score_deviation(job.config, data, list(sources), list(references))}


def score_deviation(config: Config, data: PreparedData, sources: list[str], references: list[str]) -> float:
    """Returns the standard deviation of a query's scores over the keys in its window, in the encoder's first layer.

    The variances are averaged over queries and heads. Attention weights are a softmax of the scores, so their
    logarithms are the scores minus a constant for each query, which does not affect the variance.
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
