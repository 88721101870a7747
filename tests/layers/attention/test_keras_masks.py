"""Masks in functional models with unknown lengths, Keras's implicit masks, and `use_causal_mask`."""

import keras
import numpy as np
import pytest
from keras import ops

from t2t_keras import layers

SIZES = {"num_heads": 2, "d_ff": 12}
IDS = np.array([[5, 6, 7, 0], [7, 8, 3, 4]])
MASKS = {
    "padding": layers.padding_mask,
    "causal": layers.causal_mask,
    "window": lambda ids: layers.window_mask(ids, (1, 0)),
    "both": lambda ids: layers.padding_mask(ids) & layers.causal_mask(ids),
}


def save_and_load(model: keras.Model, folder) -> keras.Model:
    model.save(folder / "model.keras")
    return keras.models.load_model(folder / "model.keras", safe_mode=True)


@pytest.mark.parametrize("name", MASKS)
def test_masks_of_ids_in_a_functional_model_with_unknown_length(name, tmp_path):
    ids = keras.Input((None,), dtype="int32")
    embedding, encoder = layers.TiedEmbedding(9, 8), layers.Encoder(2, **SIZES)
    model = keras.Model(ids, encoder(embedding(ids), MASKS[name](ids)))
    restored = save_and_load(model, tmp_path)
    for token_ids in (IDS, IDS[:, :2]):
        expected = encoder(embedding(token_ids), MASKS[name](token_ids))
        np.testing.assert_allclose(model(token_ids), expected, atol=1e-6)
        np.testing.assert_array_equal(restored(token_ids), model(token_ids))
    if name != "padding":
        np.testing.assert_array_equal(np.array(MASKS[name](IDS)).shape[-2:], (4, 4))


def test_token_rows_in_a_functional_model(tmp_path):
    ids = keras.Input((None,), dtype="int32")
    x = layers.TiedEmbedding(9, 8)(ids)
    model = keras.Model(ids, layers.FeedForward(12)(x, token_rows=layers.token_rows(ids)))
    outputs = save_and_load(model, tmp_path)(IDS)
    np.testing.assert_array_equal(outputs, model(IDS))
    assert np.all(outputs[0, 3] == 0) and np.any(outputs[0, 2] != 0)


@pytest.mark.parametrize("window", [None, 1])
def test_use_causal_mask_adds_a_causal_mask(window, rng, tmp_path):
    x = rng.standard_normal((2, 5, 8)).astype("float32")
    encoder = layers.Encoder(2, **SIZES, attention_window=window)
    outputs = np.array(encoder(x, use_causal_mask=True))
    np.testing.assert_allclose(encoder(x[:, :3], use_causal_mask=True), outputs[:, :3], atol=1e-5)
    if window is None:
        np.testing.assert_allclose(encoder(x, layers.causal_mask(5)), outputs, atol=1e-6)
    inputs = keras.Input((None, 8))
    model = save_and_load(keras.Model(inputs, encoder(inputs, use_causal_mask=True)), tmp_path)
    np.testing.assert_allclose(model(x), outputs, atol=1e-6)


def test_use_causal_mask_with_the_past(rng):
    x, memory = (rng.standard_normal((2, length, 8)).astype("float32") for length in (5, 3))
    decoder = layers.Decoder(2, **SIZES)
    expected = decoder(x, memory, use_causal_mask=True)
    np.testing.assert_allclose(expected, decoder(x, memory, layers.causal_mask(5)), atol=1e-6)
    past, parts = decoder.empty_past(2), []
    for part in (x[:, :2], x[:, 2:]):
        outputs, past = decoder(part, memory, past=past, use_causal_mask=True)
        parts.append(np.array(outputs))
    np.testing.assert_allclose(np.concatenate(parts, 1), expected, atol=1e-5)
    assert tuple(past[1].values.shape) == (2, 2, 5, 4)


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("kind", ["embedding", "masking"])
def test_keras_masks_hide_the_same_tokens_as_padding_mask(kind, window, rng, tmp_path):
    if kind == "embedding":
        inputs, values = keras.Input((None,), dtype="int32"), IDS
        masking = keras.layers.Embedding(9, 8, mask_zero=True)
    else:
        inputs, masking = keras.Input((None, 8)), keras.layers.Masking()
        values = rng.standard_normal((2, 4, 8)).astype("float32") * (IDS != 0)[..., None]
    encoder = layers.Encoder(2, **SIZES, attention_window=window)
    model = keras.Model(inputs, encoder(masking(inputs)))
    unmasked = ops.convert_to_tensor(np.array(masking(values)))  # drops the implicit mask
    expected = np.array(encoder(unmasked, layers.padding_mask(IDS)))
    for outputs in (model(values), save_and_load(model, tmp_path)(values), encoder(masking(values))):
        np.testing.assert_allclose(np.array(outputs)[IDS != 0], expected[IDS != 0], atol=1e-5)
    assert np.abs(np.array(encoder(unmasked)) - expected)[IDS != 0].max() > 1e-3


def test_keras_masks_reach_both_attentions_of_a_decoder(rng):
    embedding, decoder = keras.layers.Embedding(9, 8, mask_zero=True), layers.Decoder(2, **SIZES)
    targets = np.array([[1, 2, 0], [3, 4, 5]])
    x, memory = embedding(targets), embedding(IDS)
    outputs = np.array(decoder(x, memory, use_causal_mask=True))
    unmasked = (ops.convert_to_tensor(np.array(tensor)) for tensor in (x, memory))
    expected = np.array(decoder(*unmasked, layers.causal_mask(3), layers.padding_mask(IDS)))
    np.testing.assert_allclose(outputs[targets != 0], expected[targets != 0], atol=1e-5)


def test_the_keras_mask_is_combined_with_an_explicit_one(rng):
    x = keras.layers.Embedding(9, 8, mask_zero=True)(IDS)
    attention = layers.MultiHeadAttention(2)
    _, weights = attention(x, x, layers.causal_mask(4), return_attention_scores=True)
    expected = np.array(layers.causal_mask(4)) & np.array(layers.padding_mask(IDS))
    np.testing.assert_array_equal(np.array(weights)[:, :1] > 0, expected)
    mask = IDS != 7
    _, weights = attention(np.array(x), np.array(x), memory_mask=mask, return_attention_scores=True)
    np.testing.assert_array_equal(np.array(weights)[:, 0, 0] > 0, mask)


def test_attention_equals_that_of_keras_with_the_same_weights():
    keras_layer, layer = keras.layers.MultiHeadAttention(2, 4), layers.MultiHeadAttention(2)
    embedding = keras.layers.Embedding(9, 8, mask_zero=True)
    x = embedding(IDS)
    keras_layer(x, x), layer(x, x)
    for name in ("query", "key", "value"):
        getattr(layer, f"{name}_kernel").assign(ops.reshape(getattr(keras_layer, f"{name}_dense").kernel, (8, 8)))
    layer.output_kernel.assign(ops.reshape(keras_layer.output_dense.kernel, (8, 8)))
    for arguments in ({}, {"use_causal_mask": True}):
        arguments["return_attention_scores"] = True
        expected = keras_layer(embedding(IDS), embedding(IDS), **arguments)
        outputs = layer(embedding(IDS), embedding(IDS), **arguments)
        for actual, expected_part in zip(outputs, expected, strict=True):
            actual, expected_part = np.array(actual), np.array(expected_part)
            rows = IDS != 0 if actual.ndim == 3 else np.broadcast_to((IDS != 0)[:, None], actual.shape[:3])
            np.testing.assert_allclose(actual[rows], expected_part[rows], atol=1e-6)


def test_a_causal_mask_for_different_lengths_equals_that_of_keras(rng):
    keras_layer, layer = keras.layers.MultiHeadAttention(2, 4), layers.MultiHeadAttention(2)
    for lengths in ((3, 5), (5, 3)):
        query, memory = (rng.standard_normal((2, length, 8)).astype("float32") for length in lengths)
        _, expected = keras_layer(query, memory, use_causal_mask=True, return_attention_scores=True)
        for value in (memory, layer.keys_and_values(memory) if layer.built else memory):
            _, weights = layer(query, value, use_causal_mask=True, return_attention_scores=True)
            np.testing.assert_array_equal(np.array(weights) > 0, np.array(expected) > 0)
