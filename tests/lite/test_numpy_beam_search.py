"""The loop in NumPy against the one in TensorFlow, on logits from a table."""

import numpy as np
import pytest
from scripted import ScriptedModel
from scripted_session import ScriptedSession

from t2t_keras.config import DecodeConfig
from t2t_keras.lite.numpy_beam_search import BeamSearch, Limits
from t2t_keras.search.beam_search import beam_search as in_tensorflow
from t2t_keras.search.goal import Goal
from t2t_keras.search.scoring import length_penalty

LIMITS = np.array([6, 1, 5, 12, 0, 8, 3, 12, 9], np.int32)


def assert_same(model, beam_size, min_length=0, alpha=0.6, normalization="gnmt", num_best=None, **others):
    num_best = num_best or beam_size
    minima = np.full_like(LIMITS, min_length)
    table = np.arange(model.tables.shape[2], dtype=np.float32)[:, None]
    positions = np.zeros([LIMITS.max(), 1], np.float32)
    penalties = length_penalty(np.arange(LIMITS.max() + 1), alpha, normalization).numpy()
    others = {"ends_within_beam": False, "patience": 0.0, **others}
    limits = Limits(LIMITS, minima, penalties, num_best=num_best, **others)
    found = BeamSearch(ScriptedSession(model, beam_size), table, positions, limits).run()
    settings = DecodeConfig(beam_size=beam_size, length_penalty=alpha, length_normalization=normalization, **others)
    goal = Goal(settings, LIMITS, minima, num_best=num_best)
    wanted = in_tensorflow(ScriptedModel.step, model.start_cache(beam_size), goal)
    token_ids, scores, log_probs, lengths = found
    np.testing.assert_array_equal(lengths, wanted.lengths)
    np.testing.assert_array_equal(token_ids, wanted.token_ids)
    np.testing.assert_allclose(scores, wanted.scores, rtol=1e-5)
    used = lengths > 0
    np.testing.assert_allclose(log_probs[used], wanted.log_probs.numpy()[used], rtol=1e-5)


def scripted(seed: int, end_bias: float = 0.0, vocab: int = 7) -> ScriptedModel:
    model = ScriptedModel.random(seed, batch=len(LIMITS), vocab=vocab, end_bias=end_bias)
    model.tables[:, ::5, 0] += 9.0  # padding is often the most probable
    return model


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("end_bias", [-6.0, 0.0, 2.0])
@pytest.mark.parametrize("min_length", [0, 3])
def test_equals_the_search_in_tensorflow(seed, end_bias, min_length):
    assert_same(scripted(seed, end_bias), beam_size=2 + seed, min_length=min_length)


@pytest.mark.parametrize(
    "settings",
    [
        {"alpha": 0.0},
        {"alpha": 2.0, "num_best": 1},
        {"normalization": "average"},
        {"normalization": "none", "num_best": 2},
        {"ends_within_beam": True},
        {"ends_within_beam": True, "patience": 1.0, "normalization": "average"},
        {"patience": 0.5},
        {"patience": 2.0, "num_best": 3},
        {"min_length": 20},  # nothing ends
        {"beam_size": 25, "patience": 0.28},  # 7 in float32, more in float64
    ],
    ids=str,
)
def test_with_every_setting(settings):
    assert_same(scripted(seed=7, end_bias=0.5, vocab=9), **{"beam_size": 4, **settings})


def test_a_beam_larger_than_the_vocabulary():
    assert_same(scripted(seed=8, vocab=4), beam_size=9)


def test_a_vocabulary_wide_enough_to_be_folded():
    assert_same(scripted(seed=9, end_bias=4.0, vocab=700), beam_size=4)


def test_equal_logits():
    model = scripted(seed=10, vocab=600)
    model.tables = np.round(model.tables)  # many candidates are as probable as others
    assert_same(model, beam_size=4)
