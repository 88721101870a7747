"""Models with random weights, a batch for them, and the comparison of searches with teacher forcing."""

import functools
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from t2t_keras.config import DecodeConfig, ModelConfig
from t2t_keras.inference.forced import token_log_probs_function
from t2t_keras.models import families
from t2t_keras.search.searcher import Searcher

VOCAB = 40
SOURCE = np.array([[5, 6, 7, 30, 1], [9, 8, 1, 0, 0], [4, 1, 0, 0, 0]], np.int32)
TARGET = np.array([[3, 4, 5, 1], [8, 1, 0, 0], [11, 12, 13, 14]], np.int32)
BATCH = {"source": SOURCE, "target": TARGET}


def untrained(config: ModelConfig) -> Any:
    """Returns a model that has random numbers instead of the zeros and ones of initial weights."""
    keras.utils.set_random_seed(1)
    model = families.make_model(config)
    random = np.random.default_rng(2)
    for weight in model.trainable_variables:
        weight.assign(weight + 0.3 * random.standard_normal(tuple(weight.shape)).astype("float32"))
    return model


# Traces each model only once, since many cases share it.
_forced = functools.lru_cache(maxsize=8)(token_log_probs_function)


def assert_steps_are_teacher_forcing(
    model: Any, settings: Mapping[str, Any], source: np.ndarray = SOURCE
) -> np.ndarray:
    """Compares the log-probabilities of a search with teacher forcing of its outputs; returns the outputs."""
    config = DecodeConfig(**{"max_length_offset": 6, **settings})
    result = Searcher(model, config)(source)
    forced = _forced(model)
    for slot in range(config.beam_size):
        expected = np.sum(forced(source, result.token_ids[:, slot]), axis=1)
        log_probs = np.array(result.log_probs[:, slot])
        is_finished = np.isfinite(log_probs)  # A search can end with fewer hypotheses than beams.
        assert slot or is_finished.all()
        np.testing.assert_allclose(log_probs[is_finished], expected[is_finished], rtol=1e-5, atol=1e-4)
    return np.array(result.token_ids)
