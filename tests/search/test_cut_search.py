"""A search that is interrupted after some steps and continued finds the same as an uninterrupted one."""

import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.config import DecodeConfig
from t2t_keras.search import beam_search as searching
from t2t_keras.search.goal import Goal
from t2t_keras.search.restrictions.rules import NoRepeatNgram
from tests.search.scripted import ScriptedModel

LIMITS = [6, 1, 5, 12, 0, 8, 3, 12]
VOCAB = 7
SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 4},
    "groups": {"beam_size": 4, "num_groups": 2, "diversity_strength": 0.5},
    "coverage": {"beam_size": 4, "coverage_penalty": 3.0},
}


@functools.cache
def functions(kind: str):
    """Returns the whole search, a function that returns the start state, and one that makes steps from a state."""
    settings = DecodeConfig(**SETTINGS[kind])
    rules = (NoRepeatNgram(3),) if kind == "coverage" else ()
    goal = Goal(settings, tf.constant(LIMITS), rules=rules, num_best=1)
    coverage = settings.coverage_penalty > 0

    def start_state(tables):
        return searching.start(ScriptedModel.cache_of(tables, settings.beam_size, coverage), goal)

    @tf.function(autograph=False)
    def search_at_once(tables):
        cache = ScriptedModel.cache_of(tables, settings.beam_size, coverage)
        return searching.beam_search(ScriptedModel.step, cache, goal)

    start = tf.function(start_state, autograph=False)
    state = start.get_concrete_function(tf.TensorSpec([len(LIMITS), 1009, VOCAB])).structured_outputs
    shapes = searching.state_invariants(state)
    specs = tf.nest.map_structure(lambda shape, tensor: tf.TensorSpec(shape, tensor.dtype), shapes, state)

    @tf.function(input_signature=[specs, tf.TensorSpec([], tf.int32)], autograph=False)
    def advance(state, steps):
        state = searching.make_steps(ScriptedModel.step, state, goal, steps)
        return state, searching.result(state, goal, so_far=True), searching.done_sentences(state, goal)

    return search_at_once, start, advance


@pytest.mark.quick("greedy", "beam")
@pytest.mark.parametrize("kind", SETTINGS)
def test_an_interrupted_search_equals_a_whole_one_and_shows_partial_results(kind):
    search_at_once, start, advance = functions(kind)
    for seed, end_bias in [(1, 0.0), (3, 1.5)]:
        tables = ScriptedModel.random(seed, batch=len(LIMITS), vocab=VOCAB, end_bias=end_bias).tables
        expected = search_at_once(tables)
        for steps in (1, 3, 1000):
            state, before, calls = start(tables), np.zeros(len(LIMITS), bool), 0
            while not before.all():
                state, actual, done = advance(state, tf.constant(steps))
                calls += 1
                num_steps = actual.token_ids.shape[2]
                assert num_steps <= calls * steps
                assert (done.numpy() >= before).all(), "a finished sentence became unfinished"
                lengths = actual.lengths[:, 0].numpy()
                assert (lengths <= np.minimum(LIMITS, num_steps)).all()
                assert (lengths[~done.numpy()] > 0).all(), "a sentence has no hypothesis"
                for sentence in np.flatnonzero(done):
                    assert_same_text(actual, expected, sentence)
                if kind == "greedy":
                    for sentence, length in enumerate(lengths):
                        ids = (result.token_ids[sentence, 0, :length].numpy() for result in (actual, expected))
                        np.testing.assert_array_equal(*ids)
                else:
                    is_unfinished = ~done.numpy()
                    np.testing.assert_array_equal(
                        actual.scores[:, 0][is_unfinished], best_so_far(kind, state)[is_unfinished]
                    )
                before = done.numpy()
            assert calls == -(-num_steps // steps)
            np.testing.assert_array_equal(actual.token_ids, expected.token_ids)
            for name in ("scores", "log_probs", "lengths"):
                np.testing.assert_array_equal(getattr(actual, name), getattr(expected, name))


def best_so_far(kind, state):
    """Returns the best score of any hypothesis of each unfinished sentence, finished or active, float32 [batch]."""
    goal = Goal(DecodeConfig(**SETTINGS[kind]), LIMITS)
    active = goal.score(state.active.log_probs, state.length) + sum(state.coverage_scores)
    scores = tf.concat([state.finished.scores, active], axis=1)
    return tf.reduce_max(tf.reshape(scores, [len(LIMITS), -1]), axis=1).numpy()


def assert_same_text(actual, expected, sentence):
    length = actual.lengths[sentence, 0]
    assert length == expected.lengths[sentence, 0]
    np.testing.assert_array_equal(actual.token_ids[sentence, 0, :length], expected.token_ids[sentence, 0, :length])


def test_an_active_hypothesis_is_shown_if_it_is_better_than_the_finished_ones():
    """The empty output finishes first, but a reader should not see it."""
    _, start, advance = functions("beam")
    tables = np.zeros([len(LIMITS), 1009, VOCAB], np.float32)
    tables[:, :, 3] = 4.0  # always the most probable token
    tables[:, :, 1] = 1.0  # the end symbol is possible from the first step
    state, actual, done = advance(start(tables), tf.constant(2))
    assert not done[0]
    assert actual.token_ids[0, 0].numpy().tolist() == [3, 3]
    _, actual, done = advance(state, tf.constant(1000))
    assert done.numpy().all()


def test_zero_steps_do_not_change_the_state():
    for kind in ("greedy", "beam"):
        _, start, advance = functions(kind)
        tables = ScriptedModel.random(1, batch=len(LIMITS), vocab=VOCAB).tables
        state, actual, done = advance(start(tables), tf.constant(0))
        assert actual.token_ids.shape[2] == 0
        assert done.numpy().tolist() == [limit == 0 for limit in LIMITS]
        assert len(tf.nest.flatten(state)) == len(tf.nest.flatten(start(tables)))
