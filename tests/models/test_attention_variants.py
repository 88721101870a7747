"""The Transformer's other attentions in searches, in exports, and on engines."""

import functools
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.config import TransformerConfig
from t2t_keras.errors import InputError
from t2t_keras.models.transformer import Transformer
from tests.baselines.untrained import SOURCE, VOCAB, assert_steps_are_teacher_forcing, untrained

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
SEARCHES = [
    {"beam_size": 1},
    {"beam_size": 4},
    {"beam_size": 3, "sampling": True},
    {"beam_size": 4, "num_groups": 2, "diversity_strength": 0.5},
]


@functools.cache
def make(variant: str) -> Transformer:
    return untrained(TransformerConfig(**{**SIZES, **VARIANTS[variant]}))


@pytest.mark.quick("window_of_3-beam_size1", "additive-beam_size1")
@pytest.mark.parametrize("settings", SEARCHES, ids=lambda settings: ",".join(settings))
@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "dot"])
def test_steps_are_teacher_forcing(variant, settings):
    token_ids = assert_steps_are_teacher_forcing(make(variant), {"min_length": 6, **settings})
    assert np.count_nonzero(token_ids[:, 0], axis=1).min() >= 6  # windows leave positions behind


def test_a_step_of_a_window_keeps_as_many_positions_as_it_reaches_back():
    model, beam_size = make("window_of_3"), 2
    search = model.start_search(SOURCE, model.encode(SOURCE), beam_size)
    cache = search.cache
    for position in range(6):
        _, cache = search.step(tf.fill([3 * beam_size], position), cache)
        kept = min(position + 1, 3) * beam_size
        assert {tuple(x.shape)[2] for x in keras.tree.flatten(cache.per_sentence)} == {kept}
        assert cache.per_hypothesis.is_own.shape == (3, beam_size, kept)


def test_a_layer_reads_no_position_beyond_its_window():
    """Two decoder layers of a window of one: a token is seen by its own position and the two after it."""
    model = make("dot_in_a_window_of_1")
    target = np.array([[3, 4, 5, 6, 7, 8, 9, 1]], np.int32)
    changed = target.copy()
    changed[0, 1] = 20  # the input of position 2
    logits, others = (np.array(model({"source": SOURCE[:1], "target": ids})) for ids in (target, changed))
    differs = np.abs(logits - others).max(-1)[0] > 1e-6
    assert differs.tolist() == [False, False, True, True, True, False, False, False]


@pytest.mark.parametrize("variant", VARIANTS)
def test_views_are_of_the_logits_of_the_call(variant):
    model, inputs = make(variant), {"source": SOURCE, "target": SOURCE[::-1]}
    logits, attentions = model.logits_and_attention(inputs)
    np.testing.assert_allclose(logits, model(inputs), atol=1e-5)
    aligned = np.mean(attentions.cross[:, 0], axis=1)  # of the last layer but one
    np.testing.assert_allclose(model.alignment_attention(inputs), aligned, atol=1e-6)


def test_a_negative_window_is_refused_and_none_is_all():
    with pytest.raises(InputError, match=r"model\.attention_window must be None or a whole number of at least 0"):
        TransformerConfig(attention_window=-1)
    models = [Transformer(TransformerConfig(**SIZES, attention_window=window)) for window in (0, None, 100)]
    for model in models:
        model.build()
        model.set_weights(models[0].get_weights())
    inputs = {"source": SOURCE, "target": SOURCE}
    expected = models[0](inputs)
    np.testing.assert_array_equal(models[1](inputs), expected)
    np.testing.assert_allclose(models[2](inputs), expected, atol=1e-5)
