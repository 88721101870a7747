"""The folded step and the folded encoder against those that normalise as Figure 1 does."""

import numpy as np
import pytest
from keras import ops

from t2t_keras.layers import Decoder, Encoder
from t2t_keras.layers.attention.scores import mask_bias
from t2t_keras.layers.stepping.decoder_step import DecoderStep
from t2t_keras.layers.stepping.folded_encoder import FoldedEncoder, can_fold_encoder
from t2t_keras.layers.stepping.folded_step import FoldedDecoderStep, can_fold
from tests.layers import numpy_oracle

PRE = {"num_heads": 2, "d_key": 4, "d_ff": 12, "norm_position": "pre"}
CHANGES = {
    "pre": {},
    "no_bias": {"use_attention_bias": False},
    "widths": {"d_value": 6},
    "swish": {"activation": "swish"},
    "additive": {"attention_score": "additive"},
    "window": {"attention_window": 2},
}


def built(layer, rng):
    """With weights that are far from those that training begins with, gains and offsets of norms among them."""
    layer.build(*[(None, None, 8)] * (2 if isinstance(layer, Decoder) else 1))
    numpy_oracle.randomise(layer, rng)
    return layer


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_folded_step_equals_a_step(rng, changes, beam_size):
    decoder, batch = built(Decoder(2, {**PRE, **changes}), rng), 2
    assert can_fold(decoder)
    memory = ops.convert_to_tensor(rng.standard_normal((batch, 3, 8)), "float32")
    mask = ops.convert_to_tensor(np.array([[True, True, False], [True, True, True]])[:, None, None])
    steps = DecoderStep(decoder, "float32", beam_size), FoldedDecoderStep(decoder, beam_size)
    caches = [step.begin(memory, mask) for step in steps]
    for position in range(4):
        # Not of the mean 0: embeddings are not.
        inputs = ops.convert_to_tensor(3 + rng.standard_normal((batch * beam_size, 8)), "float32")
        own = np.tile(np.eye(beam_size, dtype=bool), min(position, changes.get("attention_window", 4)) + 1)
        bias = mask_bias(ops.convert_to_tensor(own), "float32")
        found = [step(inputs, cache, bias) for step, cache in zip(steps, caches, strict=True)]
        for before, folded in zip(found[0][::2], found[1][::2], strict=True):  # outputs, and attention to the memory
            np.testing.assert_allclose(folded, before, rtol=1e-5, atol=1e-5)
        caches = [cache._replace(past=past) for cache, (_, past, _) in zip(caches, found, strict=True)]


@pytest.mark.parametrize("changes", [{}, {"use_attention_bias": False}, {"activation": "gelu"}], ids=str)
def test_a_folded_encoder_equals_the_encoder(rng, changes):
    encoder = built(Encoder(2, {**PRE, **changes}), rng)
    assert can_fold_encoder(encoder)
    inputs = ops.convert_to_tensor(3 + rng.standard_normal((3, 5, 8)), "float32")
    mask = np.arange(5) < np.array([2, 5, 1])[:, None]
    found = FoldedEncoder(encoder)(inputs, ops.convert_to_tensor(mask[:, None, None]))
    expected = np.array(encoder(inputs, ops.convert_to_tensor(mask[:, None, None])))
    np.testing.assert_allclose(np.array(found)[mask], expected[mask], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("changes", [{"norm_position": "post"}, {"num_experts": 4, "experts_per_token": 2}], ids=str)
def test_what_cannot_be_folded(rng, changes):
    assert not can_fold(built(Decoder(1, {**PRE, **changes}), rng))
    assert not can_fold_encoder(built(Encoder(1, {**PRE, **changes}), rng))


@pytest.mark.parametrize("changes", [{"d_value": 6}, {"attention_window": 2}, {"attention_score": "additive"}], ids=str)
def test_attention_that_only_a_decoder_can_fold(rng, changes):
    assert not can_fold_encoder(built(Encoder(1, {**PRE, **changes}), rng))


def test_layers_of_a_subclass_are_not_folded(rng):
    class Other(Decoder.layer_class):
        pass

    decoder = built(Decoder(1, PRE), rng)
    decoder.layers[0].__class__ = Other
    assert not can_fold(decoder)
