"""The left half of Figure 1 against NumPy, and padding."""

import numpy as np
import pytest
from keras import ops

from t2t_keras.layers import Encoder, EncoderLayer
from t2t_keras.layers.collectors import AttentionWeights
from tests.layers import numpy_oracle

SIZES = {"num_heads": 2, "d_key": 4, "d_ff": 12}


@pytest.mark.parametrize("norm_position", ["post", "pre"])
@pytest.mark.parametrize("changes", [{}, {"d_key": 3, "d_value": 5, "use_attention_bias": False}])
def test_a_layer_equals_figure_1(rng, norm_position, changes):
    layer = EncoderLayer(**{**SIZES, **changes, "norm_position": norm_position})
    layer.build((None, None, 8))
    numpy_oracle.randomise(layer, rng)
    x = rng.standard_normal((2, 4, 8))
    mask = np.array([[True, True, True, False], [True, True, True, True]])
    outputs = layer(x.astype("float32"), mask[:, None, None])
    expected = numpy_oracle.encoder_layer(layer, x, np.repeat(mask[:, None], 4, 1))
    np.testing.assert_allclose(outputs, expected, atol=5e-5)


@pytest.mark.parametrize("norm_position", ["post", "pre"])
def test_the_stack_applies_its_layers_and_a_final_norm_if_pre(rng, norm_position):
    encoder = Encoder(3, **{**SIZES, "norm_position": norm_position})
    encoder.build((None, None, 8))
    numpy_oracle.randomise(encoder, rng)
    x = rng.standard_normal((2, 4, 8))
    expected = x
    for layer in encoder.layers:
        expected = numpy_oracle.encoder_layer(layer, expected, np.ones((2, 4, 4), bool))
    if norm_position == "pre":
        expected = numpy_oracle.layer_norm(encoder.final_norm, expected)
    else:
        assert encoder.final_norm is None
    np.testing.assert_allclose(encoder(x.astype("float32")), expected, atol=2e-4)


@pytest.mark.parametrize("norm_position", ["post", "pre"])
def test_collecting_attention_weights_does_not_change_the_call(rng, norm_position):
    encoder = Encoder(2, **{**SIZES, "norm_position": norm_position})
    encoder.build((None, None, 8))
    numpy_oracle.randomise(encoder, rng)
    x = rng.standard_normal((2, 4, 8))
    mask = np.array([[True, True, True, False], [True, True, True, True]])
    inputs = (x.astype("float32"), mask[:, None, None])
    with AttentionWeights() as collector:
        outputs = encoder(*inputs)
    np.testing.assert_array_equal(outputs, encoder(*inputs))
    weights = ops.stack(collector.weights, axis=1)  # [batch, layers, heads, source_len, source_len]
    expected = []
    for layer in encoder.layers:
        query = x if norm_position == "post" else numpy_oracle.layer_norm(layer.self_attention_residual.norm, x)
        expected.append(
            numpy_oracle.attention_weights(layer.self_attention, query, query, np.repeat(mask[:, None], 4, 1))
        )
        x = numpy_oracle.encoder_layer(layer, x, np.repeat(mask[:, None], 4, 1))
    np.testing.assert_allclose(weights, np.stack(expected, 1), atol=1e-4)
    np.testing.assert_allclose(np.array(weights).sum(-1), 1.0, rtol=1e-5)
    assert np.all(np.array(weights)[0, ..., 3] == 0)


def test_padding_does_not_affect_other_positions(rng):
    encoder = Encoder(2, **SIZES)
    x = rng.standard_normal((2, 4, 8)).astype("float32")
    noise = rng.standard_normal((2, 3, 8)).astype("float32")
    mask = np.array([True] * 4 + [False] * 3)
    padded = encoder(np.concatenate([x, noise], 1), mask)
    np.testing.assert_allclose(padded[:, :4], encoder(x), atol=1e-5)
