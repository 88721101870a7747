"""The loop in NumPy against the one in TensorFlow, on logits from a table."""

import numpy as np
import pytest
import tensorflow as tf
from scripted import ScriptedModel
from scripted_session import ScriptedSession

from t2t_keras.lite.numpy_beam_search import Limits
from t2t_keras.lite.numpy_greedy import greedy_search
from t2t_keras.search.greedy import greedy_search as in_tensorflow

LIMITS = np.array([6, 1, 5, 12, 0, 8, 3, 12], np.int32)


def search(model: ScriptedModel, limits: np.ndarray, minima: np.ndarray, scored: bool):
    steps, vocab = limits.max(), model.tables.shape[2]
    table, positions = np.arange(vocab, dtype=np.float32)[:, None], np.zeros([steps, 1], np.float32)
    penalties = np.arange(1, steps + 2, dtype=np.float32)
    found = greedy_search(
        ScriptedSession(model, 1),
        table,
        positions,
        Limits(limits, minima, penalties, ends_within_beam=False, patience=0.0, num_best=1),
        scored,
    )
    assert all(values.shape[1] == 1 for values in found)
    return [values[:, 0] for values in found]


@pytest.mark.parametrize("scored", [True, False])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("end_bias", [-6.0, 0.0, 2.0])
@pytest.mark.parametrize("min_length", [0, 3])
def test_equals_the_search_in_tensorflow(seed, end_bias, min_length, scored):
    model = ScriptedModel.random(seed, batch=len(LIMITS), vocab=7, end_bias=end_bias)
    model.tables[:, ::5, 0] += 9.0  # padding and early ends are often the most probable
    minima = np.full_like(LIMITS, min_length)
    texts, scores, log_probs, lengths = search(model, LIMITS, minima, scored)
    wanted = in_tensorflow(ScriptedModel.step, model.start_cache(1), tf.constant(LIMITS), tf.constant(minima), scored)
    np.testing.assert_array_equal(texts, wanted.token_ids)
    np.testing.assert_array_equal(lengths, wanted.lengths)
    np.testing.assert_allclose(log_probs, wanted.log_probs, rtol=1e-5)
    np.testing.assert_allclose(scores, log_probs / (1 + lengths), rtol=1e-5)
    assert np.isnan(log_probs).all() != scored


@pytest.mark.parametrize("scored", [True, False])
def test_nothing_left_to_choose_is_an_empty_output(scored):
    model = ScriptedModel.random(1, batch=2, vocab=2)
    limits, minima = np.array([4, 4], np.int32), np.array([4, 0], np.int32)
    texts, _, log_probs, lengths = search(model, limits, minima, scored)
    wanted = in_tensorflow(ScriptedModel.step, model.start_cache(1), tf.constant(limits), tf.constant(minima), scored)
    assert np.isneginf(log_probs[0]) and lengths[0] == 0 and not texts[0].any()
    assert texts[1, 0] == 1 and lengths[1] == 1
    np.testing.assert_allclose(log_probs, wanted.log_probs, rtol=1e-5)
    np.testing.assert_array_equal(texts, wanted.token_ids)


@pytest.mark.parametrize("scored", [True, False])
def test_logits_that_are_no_numbers_give_no_output(scored):
    model = ScriptedModel.random(2, batch=3, vocab=7)
    model.tables[1, :, 4] = np.nan
    limits, minima = np.array([4, 4, 4], np.int32), np.zeros(3, np.int32)
    texts, _, log_probs, lengths = search(model, limits, minima, scored)
    assert np.isneginf(log_probs[1]) and lengths[1] == 0 and not texts[1].any()
    assert (lengths[[0, 2]] > 0).all() and np.isnan(log_probs[[0, 2]]).all() != scored
