"""The length penalty and the bound on scores."""

import numpy as np
import pytest

from t2t_keras.search.scoring import length_penalty, normalised_score


def test_length_penalty():
    np.testing.assert_allclose(length_penalty(np.array([1, 7, 25]), 0.5), [1.0, 2**0.5, 5**0.5], rtol=1e-6)
    np.testing.assert_array_equal(length_penalty(np.array([1, 7, 25]), 0.0), [1.0, 1.0, 1.0])


def test_normalised_score():
    assert float(normalised_score(np.float32(-6.0), 7, 1.0)) == pytest.approx(-3.0)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 3.0])
def test_no_continuation_exceeds_the_bound(alpha):
    rng = np.random.default_rng(1)
    limit = 30
    for length in (1, 10, 29):
        for _ in range(20):
            log_prob = -rng.exponential(5.0)
            later = log_prob - np.cumsum(rng.exponential(0.1, size=limit - length)) * rng.integers(0, 2)
            scores = normalised_score(later.astype(np.float32), np.arange(length + 1, limit + 1), alpha)
            bound = normalised_score(np.float32(log_prob), limit, alpha)
            assert np.max(scores) <= bound


def test_the_average_of_an_empty_output_is_finite():
    """A skipped sentence has an empty output."""
    assert length_penalty([0, 1, 4], 0.6, "average").numpy().tolist() == [1, 1, 4]
