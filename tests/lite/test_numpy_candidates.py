"""The best continuations in NumPy against those in TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.lite.numpy_candidates import best_candidates, folded
from t2t_keras.search.candidates import best_candidates as in_tensorflow

DEAD = -np.inf


def assert_same(logits: np.ndarray, living: np.ndarray, may_end: np.ndarray) -> None:
    logits, living = logits.astype(np.float32), living.astype(np.float32)
    wanted = in_tensorflow(tf.constant(logits), tf.constant(living), tf.constant(may_end))
    log_totals = tf.reduce_logsumexp(logits, axis=1).numpy()
    found = best_candidates(logits, log_totals, living, may_end)
    np.testing.assert_allclose(found.log_probs, wanted.log_probs, rtol=1e-5, atol=3e-5)  # of logits near 100
    alive = found.log_probs > DEAD
    np.testing.assert_array_equal(found.token_ids[alive], wanted.token_ids.numpy()[alive])
    np.testing.assert_array_equal(found.parents[alive], wanted.parents.numpy()[alive])


def random_beams(random: np.random.Generator, sentences: int, beam: int) -> np.ndarray:
    return -np.sort(random.exponential(5.0, (sentences, beam)), axis=1)


@pytest.mark.parametrize("vocab", [3, 5, 40, 511, 512, 519, 8000, 8003])
@pytest.mark.parametrize("beam", [2, 4, 5])
def test_equals_those_in_tensorflow(vocab, beam):
    random = np.random.default_rng(vocab)
    for scale in (0.01, 1.0, 30.0):
        logits = scale * random.standard_normal((6 * beam, vocab))
        logits[::3, :2] += 4 * scale  # padding and ends are often the most probable
        assert_same(logits, random_beams(random, 6, beam), np.arange(6) % 2 == 0)


@pytest.mark.parametrize("vocab", [3, 600])
def test_slots_without_a_hypothesis(vocab):
    random = np.random.default_rng(1)
    living = np.where(np.arange(4) < np.array([1, 2, 3, 4])[:, None], random_beams(random, 4, 4), DEAD)
    assert_same(random.standard_normal((16, vocab)), living, np.ones(4, bool))


def test_equal_ones_come_by_slot_then_by_token():
    logits = np.zeros((8, 600), np.float32)
    logits[:, 100::7] = 1.0
    living = np.zeros((2, 4), np.float32)
    assert_same(logits, living, np.ones(2, bool))
    found = best_candidates(logits, np.ones(8, np.float32), living, np.ones(2, bool))
    np.testing.assert_array_equal(found.token_ids, [range(100, 156, 7)] * 2)
    assert not found.parents.any()


def test_one_hypothesis_far_ahead():
    random = np.random.default_rng(2)
    living = np.array([[0.0, -500.0, -1000.0, DEAD]])
    assert_same(random.standard_normal((4, 1000)), living, np.ones(1, bool))


@pytest.mark.parametrize("columns", [8, 15, 16, 100, 8003])
def test_folding(columns):
    values = np.random.default_rng(3).standard_normal((5, columns)).astype(np.float32)
    width = columns // 8
    wanted = np.stack([values[:, place::width].max(axis=1) for place in range(width)], axis=1)
    np.testing.assert_array_equal(folded(values), wanted)


def test_logits_that_are_no_numbers_continue_nothing():
    random = np.random.default_rng(4)
    logits, living = random.standard_normal((12, 700)), random_beams(random, 3, 4).astype(np.float32)
    broken = logits.astype(np.float32)
    broken[4:8, 300] = broken[8, 5] = np.nan
    log_totals = tf.reduce_logsumexp(broken, axis=1).numpy()
    found = best_candidates(broken, log_totals, living, np.ones(3, bool))
    assert np.isneginf(found.log_probs[1]).all()
    living[2, 0] = DEAD
    wanted = best_candidates(
        logits.astype(np.float32), tf.reduce_logsumexp(logits, axis=1).numpy(), living, np.ones(3, bool)
    )
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one[[0, 2]], other[[0, 2]], rtol=1e-6)
