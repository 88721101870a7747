"""One matrix for embedding and output projection."""

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


@pytest.mark.parametrize("policy", ["float32", "float64", "bfloat16", "float16", "mixed_bfloat16"])
def test_logits_are_float32_under_any_policy(policy):
    layer = TiedEmbedding(9, 8, use_bias=True, dtype=policy)
    logits = layer.logits(layer(np.array([[1, 2, 0]])))
    assert keras.backend.standardize_dtype(logits.dtype) == "float32" and tuple(logits.shape) == (1, 3, 9)


def functional_copier() -> tuple[keras.Model, TiedEmbedding]:
    token_ids = keras.Input([6], dtype="int32")
    embedding = TiedEmbedding(20, 8, use_bias=True)
    states = keras.layers.Dense(8)(embedding(token_ids))
    return keras.Model(token_ids, embedding.logits(states)), embedding


def test_logits_in_a_functional_model_train_the_embedding_matrix(tmp_path):
    model, embedding = functional_copier()
    token_ids = np.random.default_rng(1).integers(1, 10, (32, 6))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(token_ids, token_ids, epochs=1, verbose=0)
    before = embedding.table.numpy()
    model.fit(token_ids, token_ids, epochs=1, verbose=0)
    # The gradient of the logits also reaches rows of tokens that no input contains.
    assert np.abs(embedding.table.numpy() - before)[10:].max(axis=1).min() > 0
    states = model.layers[2](embedding(token_ids))
    expected = states @ embedding.table.numpy().T + embedding.bias.numpy()
    np.testing.assert_allclose(model.predict(token_ids, verbose=0), expected, atol=1e-5)
    model.save(tmp_path / "copier.keras")
    loaded = keras.models.load_model(tmp_path / "copier.keras")
    np.testing.assert_allclose(loaded.predict(token_ids, verbose=0), expected, atol=1e-5)
    assert loaded.output.shape == (None, 6, 20) and loaded.output.dtype == "float32"


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_ids_can_be_floats(policy):
    layer = TiedEmbedding(400, 8, dtype=policy)
    np.testing.assert_array_equal(layer(np.array([[3.0, 399.0, 0.0]], np.float32)), layer(np.array([[3, 399, 0]])))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "int64"])
def test_ids_can_have_any_integer_dtype(dtype):
    layer = TiedEmbedding(100, 8)
    np.testing.assert_array_equal(layer(np.array([[3, 99]], dtype)), layer(np.array([[3, 99]], "int32")))


@pytest.mark.parametrize("hidden", [(0, 0), (-3, -10)])
def test_padding_and_negative_ids_embed_to_zero(hidden):
    """Their gradient is zero as well, even if the table has no such row."""
    layer = TiedEmbedding(11, 4)
    with tf.GradientTape() as tape:
        vectors = layer(tf.constant([[hidden[0], 3, hidden[1]]]))
        loss = tf.reduce_sum(tf.square(vectors - 1.0))
    assert np.all(np.array(vectors)[0, [0, 2]] == 0) and np.all(np.array(vectors)[0, 1] != 0)
    gradient = tf.convert_to_tensor(tape.gradient(loss, layer.table.value))
    assert np.flatnonzero(np.any(gradient != 0, axis=1)).tolist() == [3]


def test_logits_are_products_with_every_row_of_the_same_matrix(rng):
    layer = TiedEmbedding(11, 4)  # The logits can be the first call.
    states = rng.standard_normal((2, 3, 4)).astype("float32")
    logits = layer.logits(ops.convert_to_tensor(states))
    assert tuple(logits.shape) == (2, 3, 11)
    np.testing.assert_allclose(logits, states @ layer.table.numpy().T, atol=1e-6)
    assert len(layer.weights) == 1


def test_the_initial_matrix_has_a_deviation_of_one_over_the_root_of_d_model():
    layer = TiedEmbedding(2000, 64)
    layer.build()
    assert np.std(layer.table.numpy()) == pytest.approx(64**-0.5, rel=0.02)
