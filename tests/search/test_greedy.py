"""Greedy search against the general search with a beam of one."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.config import DecodeConfig
from t2t_keras.search.beam_search import beam_search
from t2t_keras.search.goal import Goal
from tests.search.scripted import NUM_CODES, ScriptedModel

LIMITS = [6, 1, 5, 12, 0, 8, 3, 12]


@functools.cache
def compiled(min_length: int, general: bool):
    """Traces both searches; the other tests of this file run eagerly."""
    free = tf.zeros([len(LIMITS), 1], tf.int32)  # restricts nothing, but selects the general search

    @tf.function(input_signature=[tf.TensorSpec([None, NUM_CODES, 7])], autograph=False)
    def run(tables):
        goal = Goal(DecodeConfig(beam_size=1, min_length=min_length), LIMITS, prefixes=free if general else None)
        return beam_search(ScriptedModel.step, ScriptedModel.cache_of(tables, 1), goal)

    return run


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("end_bias", [-6.0, 0.0, 2.0])
@pytest.mark.parametrize("min_length", [0, 3])
def test_equals_the_general_search(seed, end_bias, min_length):
    model = ScriptedModel.random(seed, batch=len(LIMITS), vocab=7, end_bias=end_bias)
    model.tables[:, ::5, 0] += 9.0  # makes padding and early ends likely
    actual, expected = (compiled(min_length, general)(model.tables) for general in (False, True))
    np.testing.assert_array_equal(actual.token_ids, expected.token_ids)
    np.testing.assert_array_equal(actual.lengths, expected.lengths)
    np.testing.assert_allclose(actual.log_probs, expected.log_probs, rtol=1e-5)
    np.testing.assert_allclose(actual.scores, expected.scores, rtol=1e-5)


def test_an_output_without_allowed_tokens_is_empty():
    model = ScriptedModel.random(1, batch=2, vocab=2)
    result = beam_search(ScriptedModel.step, model.start_cache(1), Goal(DecodeConfig(beam_size=1), [4, 4], [4, 0]))
    assert result.lengths[0, 0] == 0
    assert np.isneginf(result.scores[0, 0])
    assert result.token_ids[1, 0, 0] == 1


@pytest.mark.parametrize("scored", [True, False])
def test_nan_logits_give_no_output(scored):
    model = ScriptedModel.random(2, batch=3, vocab=7, end_bias=2.0)
    goal = Goal(DecodeConfig(beam_size=1), [6] * 3, scored=scored)
    expected = beam_search(ScriptedModel.step, model.start_cache(1), goal)
    model.tables[1, :, 4] = np.nan
    actual = beam_search(ScriptedModel.step, model.start_cache(1), goal)
    assert actual.lengths[1, 0] == 0 and np.isneginf(actual.scores[1, 0]) and not actual.token_ids[1].numpy().any()
    for row in (0, 2):
        length = int(expected.lengths[row, 0])
        np.testing.assert_array_equal(actual.token_ids[row, 0, :length], expected.token_ids[row, 0, :length])
        np.testing.assert_array_equal(actual.scores[row], expected.scores[row])


def test_a_sentence_without_allowed_tokens_stops_the_search():
    model = ScriptedModel.random(2, batch=1, vocab=7)
    model.tables[:] = np.nan
    actual = beam_search(ScriptedModel.step, model.start_cache(1), Goal(DecodeConfig(beam_size=1), [30]))
    assert actual.token_ids.shape == (1, 1, 1)
