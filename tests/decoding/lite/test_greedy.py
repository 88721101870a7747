"""The loop in NumPy against the one in TensorFlow, on logits from a table."""

import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf

sys.path.append(str(pathlib.Path(__file__).parents[1]))

from scripted import ScriptedModel

from t2t_keras.decoding.greedy import greedy_search as in_tensorflow
from t2t_keras.decoding.lite.greedy import greedy_search

LIMITS = np.array([6, 1, 5, 12, 0, 8, 3, 12], np.int32)


class ScriptedSession:
    """A `ScriptedModel` in the shape of a session; tokens are embedded as themselves."""

    def __init__(self, model: ScriptedModel) -> None:
        self._cache = model.start_cache(1)
        self._sentences = np.arange(len(model.tables))

    def advance(self, inputs: np.ndarray, sentences: np.ndarray) -> None:
        places = np.searchsorted(self._sentences, sentences)
        self._sentences = sentences
        for entry in ("hypotheses", "self_attention", "memory"):
            self._cache[entry] = tf.nest.map_structure(lambda value: tf.gather(value, places), self._cache[entry])
        tokens = tf.constant(inputs[:, 0].astype(np.int32))
        self._logits, self._cache = ScriptedModel.step(tokens, self._cache)

    def logits_in_place(self) -> np.ndarray:
        return self._logits.numpy()

    def scratch(self) -> np.ndarray:
        return np.empty(self._logits.shape, np.float32)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("end_bias", [-6.0, 0.0, 2.0])
@pytest.mark.parametrize("min_length", [0, 3])
def test_equals_the_search_in_tensorflow(seed, end_bias, min_length):
    model = ScriptedModel.random(seed, batch=len(LIMITS), vocab=7, end_bias=end_bias)
    model.tables[:, ::5, 0] += 9.0  # padding and early ends are often the most probable
    minima = np.full_like(LIMITS, min_length)
    table, positions = np.arange(7, dtype=np.float32)[:, None], np.zeros([LIMITS.max(), 1], np.float32)
    texts, log_probs, lengths = greedy_search(ScriptedSession(model), table, positions, LIMITS, minima, True)
    wanted = in_tensorflow(ScriptedModel.step, model.start_cache(1), tf.constant(LIMITS), tf.constant(minima))
    np.testing.assert_array_equal(texts, wanted.token_ids)
    np.testing.assert_array_equal(lengths, wanted.lengths)
    np.testing.assert_allclose(log_probs, wanted.log_probs, rtol=1e-5)


@pytest.mark.parametrize("scored", [True, False])
def test_nothing_left_to_choose_is_an_empty_output(scored):
    model = ScriptedModel.random(1, batch=2, vocab=2)
    table, positions = np.arange(2, dtype=np.float32)[:, None], np.zeros([4, 1], np.float32)
    limits, minima = np.array([4, 4], np.int32), np.array([4, 0], np.int32)
    texts, log_probs, lengths = greedy_search(ScriptedSession(model), table, positions, limits, minima, scored)
    assert np.isneginf(log_probs[0]) and lengths[0] == 0 and not texts[0].any()
    assert texts[1, 0] == 1 and lengths[1] == 1
