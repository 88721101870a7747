"""The fused loss of two predictions and its gradients, compared with those of the plain formula."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.losses import PairTerms, pair_losses
from t2t_keras.training import fused_loss as module
from t2t_keras.training.pair_loss import ChunkedPairLoss
from t2t_keras.training.updates import Head
from tests.training.test_fused_loss import VOCAB, assert_close, make_inputs

TERMS = [PairTerms.simcut(3.0), PairTerms.rdrop(2.0), PairTerms(0.7, 0.3, 0.5, 1.5)]
SCALE, EPSILON = 3.0, 0.1


def make_pairs(has_bias: bool = True) -> tuple[np.ndarray, ...]:
    """Returns hidden states of both predictions, a head, and targets with padding."""
    states, *head_and_targets = make_inputs(batch=12, has_bias=has_bias)
    return np.concatenate([states, make_inputs(batch=12, seed=1)[0]]), *head_and_targets


def plain(terms: PairTerms, states: np.ndarray, *head_and_targets: np.ndarray) -> list[np.ndarray]:
    hidden, *head, targets = map(tf.constant, (states, *head_and_targets))
    with tf.GradientTape() as tape:
        tape.watch([hidden, *head])
        logits = tf.matmul(hidden, head[0], transpose_b=True) + (head[1] if len(head) == 2 else 0.0)
        real = tf.cast(targets != 0, tf.float32)
        loss = tf.reduce_sum(pair_losses(targets, tuple(tf.split(logits, 2)), terms, EPSILON) * real)
        scaled = SCALE * loss
    return [tensor.numpy() for tensor in (loss, *tape.gradient(scaled, [hidden, *head]))]


def fused(
    terms: PairTerms, inputs: tuple[np.ndarray, ...], dtype: str = "float32", **options: bool
) -> list[np.ndarray]:
    @tf.function(autograph=False, jit_compile=options.pop("jit_compile", None))
    def computed() -> list[tf.Tensor]:
        states, *head, targets = map(tf.constant, inputs)
        hidden = tf.cast(states, dtype)
        loss = ChunkedPairLoss(Head(*head), EPSILON, hidden.dtype, options.get("for_cpu", True), terms)
        result = loss(hidden, targets, SCALE, options.get("skip_padding", True))
        return [result.loss_sum, result.d_hidden, *result.d_head[: len(head)]]

    return [tf.cast(tensor, tf.float32).numpy() for tensor in computed()]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Uses chunks of 32 rows, so that the inputs have several, of which the last is partial."""
    monkeypatch.setattr(module, "_CPU_CHUNK_ELEMENTS", 64 * VOCAB)
    monkeypatch.setattr(module, "_ACCELERATOR_CHUNK_ELEMENTS", 64 * VOCAB)


@pytest.mark.parametrize("options", [{}, {"skip_padding": False}, {"skip_padding": False, "for_cpu": False}])
@pytest.mark.parametrize("terms", TERMS)
def test_equals_the_plain_formula(terms, options):
    inputs = make_pairs()
    assert_close(fused(terms, inputs, **options), plain(terms, *inputs), 3e-5)


def test_equal_predictions_have_the_plain_loss_and_no_divergence():
    states, *head, targets = make_inputs(has_bias=True)
    pair = np.concatenate([states, states])
    loss, d_hidden, *_ = fused(TERMS[0], (pair, *head, targets))
    expected, d_states, *_ = plain(PairTerms(1.0, 0.0, 0.0, 0.0), pair, *head, targets)
    assert loss == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(d_hidden, d_states, atol=1e-4)
    assert d_hidden.shape == (6, 7, 8) and head[0].shape[0] == VOCAB


def test_a_loss_without_divergence_is_rejected():
    with pytest.raises(ValueError, match="`terms.w_kl12` must be a finite number above 0"):
        fused(PairTerms(1.0, 0.0, 0.0, 1.0), make_pairs())
