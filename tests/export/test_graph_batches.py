"""Batches in the graph: the same as the translator's, with the results in the original order."""

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_keras.export.graph_batches import in_batches, widened
from t2t_keras.search.batches import length_batches


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 20), max_size=30), st.integers(1, 60))
def test_same_batches_and_order(lengths, budget):
    batches = []

    def compute(rows):
        batches.append(rows.numpy().tolist())
        longest = tf.reduce_max(tf.gather(lengths, rows))
        return rows, widened(tf.ones([tf.size(rows), longest]), [max(lengths)])

    tf.config.run_functions_eagerly(True)
    specs = [tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, None], tf.float32)]
    try:
        rows, values = in_batches(tf.constant(lengths, tf.int32), budget, compute, specs)
    finally:
        tf.config.run_functions_eagerly(False)
    assert batches == list(length_batches(lengths, budget))
    np.testing.assert_array_equal(rows, np.arange(len(lengths)))
    assert values.shape[0] == len(lengths)


def test_widened():
    padded = widened(tf.ones([2, 1, 2]), [2, tf.constant(4)])
    np.testing.assert_array_equal(padded[1], [[1, 1, 0, 0], [0, 0, 0, 0]])
