"""The candidates of a step."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.search import candidates


@pytest.mark.parametrize("few", [0, 10**6])
def test_the_largest_probability_of_few_rows_and_of_many(monkeypatch, few):
    monkeypatch.setattr(candidates, "_FEW_LOGITS", few)
    logits = tf.constant(20 * np.random.default_rng(0).standard_normal((5, 300)), tf.float32)
    largest, places = tf.math.top_k(logits, 1)
    actual = candidates.log_largest_probability(logits, largest, places)
    np.testing.assert_allclose(actual[:, 0], tf.reduce_max(tf.nn.log_softmax(logits), axis=1), rtol=1e-5, atol=1e-6)
