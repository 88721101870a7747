"""One matrix that embeds and projects."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from t2t_keras.layers import TiedEmbedding


def test_tokens_embed_to_their_row_times_the_root_of_d_model():
    layer = TiedEmbedding(11, 16)
    token_ids = np.array([[3, 10, 1], [7, 3, 2]])
    vectors = layer(token_ids)
    assert tuple(vectors.shape) == (2, 3, 16)
    np.testing.assert_allclose(vectors, 4.0 * layer.table.numpy()[token_ids], rtol=1e-6)


def test_id_0_embeds_to_zero_and_learns_nothing():
    layer = TiedEmbedding(11, 4)
    token_ids = tf.constant([[0, 3, 0]])
    with tf.GradientTape() as tape:
        vectors = layer(token_ids)
        loss = tf.reduce_sum(tf.square(vectors - 1.0))
    assert np.all(np.array(vectors)[0, [0, 2]] == 0)
    gradient = tf.convert_to_tensor(tape.gradient(loss, layer.table.value))
    assert np.all(gradient[0] == 0)
    assert np.all(gradient[3] != 0)


def test_logits_are_products_with_every_row_of_the_same_matrix(rng):
    layer = TiedEmbedding(11, 4)
    layer.build()
    states = rng.standard_normal((2, 3, 4)).astype("float32")
    logits = layer.logits(ops.convert_to_tensor(states))
    assert tuple(logits.shape) == (2, 3, 11)
    np.testing.assert_allclose(logits, states @ layer.table.numpy().T, atol=1e-6)
    assert len(layer.weights) == 1


def test_the_matrix_begins_with_a_deviation_of_one_over_the_root_of_d_model():
    layer = TiedEmbedding(2000, 64)
    layer.build()
    assert np.std(layer.table.numpy()) == pytest.approx(64**-0.5, rel=0.02)


def test_logits_are_float32_under_mixed_precision_and_the_matrix_too(mixed_bfloat16):
    layer = TiedEmbedding(11, 4)
    vectors = layer(np.array([[3, 1]]))
    assert keras.backend.standardize_dtype(vectors.dtype) == "bfloat16"
    assert keras.backend.standardize_dtype(layer.table.dtype) == "float32"
    assert keras.backend.standardize_dtype(layer.logits(vectors).dtype) == "float32"


@pytest.mark.parametrize("argument", ["vocab_size", "d_model"])
def test_sizes_below_one_are_refused(argument):
    with pytest.raises(ValueError, match=rf"`{argument}` must be at least 1, got 0"):
        TiedEmbedding(**{"vocab_size": 3, "d_model": 4, argument: 0})
