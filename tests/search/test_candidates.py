import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.search import candidates


@pytest.mark.parametrize("most_logits", [0, 10**6])
def test_the_largest_log_probability_in_both_implementations(monkeypatch, most_logits):
    monkeypatch.setattr(candidates, "_FEW_LOGITS", most_logits)
    logits = tf.constant(20 * np.random.default_rng(0).standard_normal((5, 300)), tf.float32)
    largest, places = tf.math.top_k(logits, 1)
    largest_log_probs = candidates.log_largest_probability(logits, largest, places)
    np.testing.assert_allclose(
        largest_log_probs[:, 0], tf.reduce_max(tf.nn.log_softmax(logits), axis=1), rtol=1e-5, atol=1e-6
    )
