"""One position at a time against all at once."""

import keras
import numpy as np
import pytest
from keras import ops

from t2t_keras.layers import Decoder, causal_mask
from t2t_keras.layers.attention.scores import mask_bias
from t2t_keras.layers.stepping.decoder_step import DecoderStep
from tests.layers import numpy_oracle

SIZES = {"num_heads": 2, "d_key": 4, "d_ff": 12}


CHANGES = {
    "paper": {},
    "pre": {"norm_position": "pre"},
    "widths": {"d_value": 6, "use_attention_bias": False},
    "swish": {"activation": "swish"},
    "dot": {"attention_score": "dot"},
    "additive": {"attention_score": "additive"},
    "window": {"attention_window": 2},
    "additive_window": {"attention_score": "additive", "attention_window": 1},
    "wide_window": {"attention_window": 9},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("beam_size", [1, 3])
def test_position_by_position_equals_all_at_once(rng, changes, beam_size):
    decoder = Decoder(2, {**SIZES, **changes})
    decoder.build((None, None, 8), (None, None, 8))
    numpy_oracle.randomise(decoder, rng)
    batch, length = 2, 5
    x = rng.standard_normal((batch * beam_size, length, 8)).astype("float32")
    memory = rng.standard_normal((batch, 3, 8)).astype("float32")
    mask = np.array([[True, True, False], [True, True, True]])[:, None, None]
    window = changes.get("attention_window", length)
    self_mask = None if "attention_window" in changes else causal_mask(length)
    expected = decoder(x, np.repeat(memory, beam_size, 0), self_mask, np.repeat(mask, beam_size, 0))

    step = DecoderStep(decoder, "float32", beam_size)
    cache = step.begin(ops.convert_to_tensor(memory), ops.convert_to_tensor(mask))
    assert tuple(cache.past[0].keys.shape) == (batch, 2, 0, 4)
    assert tuple(cache.memory[0].keys.shape) == (batch, 2, 3, 4)
    beams = x.reshape(batch, beam_size, length, 8)
    expected = np.array(expected).reshape(beams.shape)
    for position in range(length):
        own = np.tile(np.eye(beam_size, dtype=bool), min(position, window) + 1)  # --> [beam, positions * beam]
        inputs = ops.convert_to_tensor(beams[:, :, position].reshape(-1, 8))
        outputs, past, _ = step(inputs, cache, mask_bias(ops.convert_to_tensor(own), "float32"))
        cache = cache._replace(past=past)
        assert tuple(past[0].keys.shape) == (batch, 2, min(position + 1, window) * beam_size, 4)
        np.testing.assert_allclose(outputs, expected[:, :, position].reshape(-1, 8), atol=1e-5)


def test_a_step_has_no_dropout_inside_a_layer_in_training(rng):
    class Outer(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = Decoder(1, {**SIZES, "dropout_rate": 0.5, "attention_dropout_rate": 0.5})
            self.inner.build((None, None, 8), (None, None, 8))

        def call(self, x, memory):
            step = DecoderStep(self.inner, "float32", 1)
            return step(x, step.begin(memory, ops.ones((2, 1, 1, 3), "bool")), None)[0]

    outer = Outer()
    x, memory = (rng.standard_normal(shape).astype("float32") for shape in ((2, 8), (2, 3, 8)))
    np.testing.assert_array_equal(outer(x, memory, training=True), outer(x, memory, training=False))
