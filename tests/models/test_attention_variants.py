"""The attention variants of the Transformer in searches."""

import functools
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.config import TransformerConfig
from t2t_keras.models.transformer import Transformer
from tests.baselines.untrained import SOURCE, VOCAB, untrained

SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "num_encoder_layers": 1,
    "num_decoder_layers": 2,
    "d_model": 8,
    "d_ff": 12,
    "num_heads": 2,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "dot": {"attention_score": "dot"},
    "additive": {"attention_score": "additive"},
    "dot_in_a_window_of_1": {"attention_score": "dot", "attention_window": 1},
    "window_of_3": {"attention_window": 3, "norm_position": "pre"},
}


@functools.cache
def make(variant: str) -> Transformer:
    return untrained(TransformerConfig(**{**SIZES, **VARIANTS[variant]}))


def test_a_step_with_a_window_caches_only_its_positions():
    model, beam_size = make("window_of_3"), 2
    search = model.start_search(SOURCE, model.encode(SOURCE), beam_size)
    cache = search.cache
    for position in range(6):
        _, cache = search.step(tf.fill([3 * beam_size], position), cache)
        num_cached = min(position + 1, 3) * beam_size
        assert {tuple(x.shape)[2] for x in keras.tree.flatten(cache.per_sentence)} == {num_cached}
        assert cache.per_hypothesis.is_ancestor.shape == (3, beam_size, num_cached)


def test_a_layer_ignores_positions_beyond_its_window():
    """With two decoder layers and a window of one, a token affects its own position and the next two."""
    model = make("dot_in_a_window_of_1")
    target = np.array([[3, 4, 5, 6, 7, 8, 9, 1]], np.int32)
    changed = target.copy()
    changed[0, 1] = 20  # the input at position 2
    logits, changed_logits = (np.array(model({"source": SOURCE[:1], "target": ids})) for ids in (target, changed))
    differs = np.abs(logits - changed_logits).max(-1)[0] > 1e-6
    assert differs.tolist() == [False, False, True, True, True, False, False, False]


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_and_attention_equal_the_call(variant):
    model, inputs = make(variant), {"source": SOURCE, "target": SOURCE[::-1]}
    logits, attentions = model.logits_and_attention(inputs)
    np.testing.assert_allclose(logits, model(inputs), atol=1e-5)
    aligned = np.mean(attentions.cross[:, 0], axis=1)  # of the layer before the last
    np.testing.assert_allclose(model.alignment_attention(inputs), aligned, atol=1e-6)
