"""The right half of Figure 1 against NumPy."""

import keras
import numpy as np
import pytest
from keras import ops

from t2t_keras.layers import Decoder, DecoderLayer, MultiHeadAttention, causal_mask
from t2t_keras.layers.collectors import AttentionWeights
from tests.layers import numpy_oracle

SIZES = {"num_heads": 2, "d_key": 4, "d_ff": 12}


@pytest.mark.parametrize("norm_position", ["post", "pre"])
@pytest.mark.parametrize("changes", [{}, {"d_key": 3, "d_value": 5, "use_attention_bias": False}])
def test_a_layer_equals_figure_1(rng, norm_position, changes):
    layer = DecoderLayer(**{**SIZES, **changes, "norm_position": norm_position})
    layer.build((None, None, 8), (None, None, 6))
    numpy_oracle.randomise(layer, rng)
    x, memory = rng.standard_normal((2, 4, 8)), rng.standard_normal((2, 3, 6))
    cross_mask = np.array([[True, True, False], [True, True, True]])
    outputs = layer(x.astype("float32"), memory.astype("float32"), causal_mask(4), cross_mask[:, None, None])
    causal = np.broadcast_to(np.tril(np.ones((4, 4), bool)), (2, 4, 4))
    expected = numpy_oracle.decoder_layer(layer, x, memory, causal, np.repeat(cross_mask[:, None], 4, 1))
    np.testing.assert_allclose(outputs, expected, atol=5e-5)


@pytest.mark.parametrize("norm_position", ["post", "pre"])
def test_the_stack_applies_its_layers_and_a_final_norm_if_pre(rng, norm_position):
    decoder = Decoder(2, **{**SIZES, "norm_position": norm_position})
    decoder.build((None, None, 8), (None, None, 8))
    numpy_oracle.randomise(decoder, rng)
    x, memory = rng.standard_normal((2, 4, 8)), rng.standard_normal((2, 3, 8))
    causal = np.broadcast_to(np.tril(np.ones((4, 4), bool)), (2, 4, 4))
    expected = x
    for layer in decoder.layers:
        expected = numpy_oracle.decoder_layer(layer, expected, memory, causal, np.ones((2, 4, 3), bool))
    if norm_position == "pre":
        expected = numpy_oracle.layer_norm(decoder.final_norm, expected)
    outputs = decoder(x.astype("float32"), memory.astype("float32"), causal_mask(4))
    np.testing.assert_allclose(outputs, expected, atol=2e-4)


@pytest.mark.parametrize("norm_position", ["post", "pre"])
def test_collecting_attention_weights_does_not_change_the_call(rng, norm_position):
    decoder = Decoder(2, **{**SIZES, "norm_position": norm_position})
    decoder.build((None, None, 8), (None, None, 8))
    numpy_oracle.randomise(decoder, rng)
    x, memory = rng.standard_normal((2, 4, 8)), rng.standard_normal((2, 3, 8))
    mask = np.array([[True, True, False], [True, True, True]])
    inputs = (x.astype("float32"), memory.astype("float32"), causal_mask(4), mask[:, None, None])
    with AttentionWeights() as collector:
        outputs = decoder(*inputs)
    np.testing.assert_array_equal(outputs, decoder(*inputs))
    # Each layer attends to itself first, then to the memory.
    self_weights, cross_weights = (ops.stack(collector.weights[offset::2], axis=1) for offset in (0, 1))

    causal = np.broadcast_to(np.tril(np.ones((4, 4), bool)), (2, 4, 4))
    cross, expected_self, expected_cross = np.repeat(mask[:, None], 4, 1), [], []
    for layer in decoder.layers:
        query = x if norm_position == "post" else numpy_oracle.layer_norm(layer.self_attention_residual.norm, x)
        expected_self.append(numpy_oracle.attention_weights(layer.self_attention, query, query, causal))
        query = numpy_oracle.self_attention_sublayer(layer, x, causal)
        if norm_position == "pre":
            query = numpy_oracle.layer_norm(layer.cross_attention_residual.norm, query)
        expected_cross.append(numpy_oracle.attention_weights(layer.cross_attention, query, memory, cross))
        x = numpy_oracle.decoder_layer(layer, x, memory, causal, cross)
    for weights, expected in ((self_weights, expected_self), (cross_weights, expected_cross)):
        np.testing.assert_allclose(weights, np.stack(expected, 1), atol=1e-4)
        np.testing.assert_allclose(np.array(weights).sum(-1), 1.0, rtol=1e-5)
    assert np.all(np.array(cross_weights)[0, ..., 2] == 0)
    assert np.all(np.triu(self_weights, 1) == 0)


def test_every_dropout_site_has_a_different_mask(rng):
    """Setting a single rate to 0 changes the outputs, and layers of one stack have different masks."""
    names = ("dropout_rate", "attention_dropout_rate", "relu_dropout_rate")
    x, memory = (rng.standard_normal((2, n, 8)).astype("float32") for n in (4, 3))
    seed = ops.convert_to_tensor([1, 2], "int32")
    reference = Decoder(2, **{**SIZES, **dict.fromkeys(names, 0.4)})
    outputs = np.array(reference(x, memory, seed=seed, training=True))
    np.testing.assert_array_equal(outputs, reference(x, memory, seed=seed, training=True))
    for name in names:
        without_one_site = Decoder(2, **{**SIZES, **dict.fromkeys(names, 0.4), name: 0.0})
        without_one_site.build(x.shape, memory.shape)
        for weight, value in zip(without_one_site.trainable_variables, reference.trainable_variables, strict=True):
            weight.assign(value)
        assert np.abs(np.array(without_one_site(x, memory, seed=seed, training=True)) - outputs).max() > 1e-3


CHANGES = {
    "paper": {},
    "pre": {"norm_position": "pre", "d_value": 6, "use_attention_bias": False, "activation": "swish"},
    "dot": {"attention_score": "dot"},
    "window": {"attention_window": 2},
    "additive_window": {"attention_score": "additive", "attention_window": 1},
    "wide_window": {"attention_window": 9},
}


@pytest.mark.parametrize(
    ("changes", "beam_size"), [({}, 1), *((changes, 3) for changes in CHANGES.values())], ids=["greedy", *CHANGES]
)
def test_steps_equal_the_call(rng, changes, beam_size):
    """The hypotheses of a sentence take the axis of the target positions."""
    decoder = Decoder(2, **{**SIZES, **changes})
    decoder.build((None, None, 8), (None, None, 8))
    numpy_oracle.randomise(decoder, rng)
    batch, length = 2, 5
    x = rng.standard_normal((batch * beam_size, length, 8)).astype("float32")
    memory = rng.standard_normal((batch, 3, 8)).astype("float32")
    mask = np.array([[True, True, False], [True, True, True]])[:, None, None]
    window = changes.get("attention_window", length)
    self_mask = None if "attention_window" in changes else causal_mask(length)
    expected = decoder(x, np.repeat(memory, beam_size, 0), self_mask, np.repeat(mask, beam_size, 0))

    past, memories = decoder.empty_past(batch), decoder.keys_and_values(ops.convert_to_tensor(memory))
    assert tuple(past[0].keys.shape) == (batch, 2, 0, 4)
    assert tuple(memories[0].keys.shape) == (batch, 2, 3, 4)
    beams = x.reshape(batch, beam_size, length, 8)
    expected = np.array(expected).reshape(beams.shape)
    for position in range(length):
        same_beam_mask = np.tile(np.eye(beam_size, dtype=bool), min(position, window) + 1)  # [beam, positions * beam]
        inputs = ops.convert_to_tensor(beams[:, :, position])
        outputs, past = decoder(inputs, memories, ops.convert_to_tensor(same_beam_mask), mask, past=past)
        past = [keys_and_values.newest(window * beam_size) for keys_and_values in past]
        assert tuple(past[0].keys.shape) == (batch, 2, min(position + 1, window) * beam_size, 4)
        np.testing.assert_allclose(outputs, expected[:, :, position], atol=1e-5)


def shapes_and_dtypes(results):
    return keras.tree.map_structure(
        lambda tensor: (tuple(tensor.shape), keras.backend.standardize_dtype(tensor.dtype)), results
    )


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_symbolic_call_with_a_past_has_the_shapes_of_an_actual_call(rng, policy):
    x, memory = (rng.standard_normal((2, n, 8)).astype("float32") for n in (4, 3))
    attention = MultiHeadAttention(2, 4, 3, dtype=policy)
    layer, decoder = DecoderLayer(**SIZES, dtype=policy), Decoder(2, **SIZES, dtype=policy)
    for called_layer in (attention, layer, decoder):
        called_layer(x, memory)
    attention_past, layer_past = attention(x, x, past=attention.empty_keys_and_values(2))[1], decoder.empty_past(2)[0]
    calls = [
        (attention, (x, x, None, None, attention_past), {}),
        (attention, (x, x), {"past": attention_past, "return_attention_scores": True}),
        (attention, (x, memory), {"return_attention_scores": True}),
        (layer, (x, memory), {"past": layer_past}),
        (decoder, (x, memory), {"past": decoder.empty_past(2)}),
    ]
    for called_layer, inputs, arguments in calls:
        first, *other_inputs = inputs
        symbolic = called_layer(keras.KerasTensor(first.shape, "float32"), *other_inputs, **arguments)
        assert shapes_and_dtypes(symbolic) == shapes_and_dtypes(called_layer(*inputs, **arguments))
    symbolic = [keras.KerasTensor((None, None, 8), "float32")] * 2
    outputs, weights = attention(*symbolic, return_attention_scores=True)
    assert (outputs.shape, weights.shape) == ((None, None, 8), (None, 2, None, None))
