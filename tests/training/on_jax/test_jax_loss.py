"""The loss on JAX and its gradients equal the plain formula on TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.losses import PairTerms, loss_sum_and_count, pair_losses

jax = pytest.importorskip("jax")

from t2t_keras.training.on_jax import jax_loss  # noqa: E402
from t2t_keras.training.on_jax.jax_loss import scaled_loss  # noqa: E402
from t2t_keras.training.updates import Head  # noqa: E402

pytestmark = pytest.mark.integration

VOCAB, D_MODEL, SCALE, UPSTREAM = 90, 8, 0.25, 3.0


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


HIDDEN, TABLE, BIAS = numbers(5, 31, D_MODEL), numbers(VOCAB, D_MODEL), numbers(VOCAB)
LENGTHS = np.array([[31], [4], [0], [17], [1]])
TARGETS = np.where(np.arange(31) < LENGTHS, np.random.default_rng(1).integers(1, VOCAB, (5, 31)), 0).astype(np.int32)


def expected_results(smoothing: float, has_bias: bool) -> list[np.ndarray]:
    """Returns TensorFlow's scaled loss and gradients of UPSTREAM times it, for hidden states, table and bias."""
    hidden, table, bias = inputs = [tf.constant(each) for each in (HIDDEN, TABLE, BIAS)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        logits = tf.matmul(hidden, table, transpose_b=True)
        loss = SCALE * loss_sum_and_count(TARGETS, logits + bias if has_bias else logits, smoothing)[0]
        upstream = UPSTREAM * loss
    variables = inputs if has_bias else inputs[:2]
    return [np.array(each) for each in (loss, *tape.gradient(upstream, variables))]


def jax_results(smoothing: float, has_bias: bool, dtype: str = "float32") -> list[np.ndarray]:
    """Returns the same for `scaled_loss`."""

    @jax.jit
    def compute(hidden, head):
        def loss(hidden, head):
            value = scaled_loss(hidden, head, TARGETS, np.float32(SCALE), smoothing)
            return UPSTREAM * value, value

        (_, value), gradients = jax.value_and_grad(loss, (0, 1), has_aux=True)(hidden, head)
        return value, gradients

    head = Head(TABLE, BIAS if has_bias else None)
    return [np.asarray(each, np.float32) for each in jax.tree.leaves(compute(jax.numpy.asarray(HIDDEN, dtype), head))]


@pytest.mark.parametrize("chunk", [2**27, 64 * VOCAB])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_gradients(monkeypatch, chunk, has_bias, smoothing):
    """Tests all rows at once, and three chunks, of which the last is padded."""
    monkeypatch.setattr(jax_loss, "_CHUNK_ELEMENTS", chunk)
    expected, quick = expected_results(smoothing, has_bias), jax_results(smoothing, has_bias)
    for one, other in zip(quick, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6 * np.abs(other).max())


@pytest.mark.parametrize("chunk", [2**27, 64 * VOCAB])
@pytest.mark.parametrize("terms", [PairTerms.simcut(3.0), PairTerms.rdrop(2.0)])
def test_two_predictions(monkeypatch, chunk, terms):
    monkeypatch.setattr(jax_loss, "_CHUNK_ELEMENTS", chunk)
    both = np.concatenate([HIDDEN, HIDDEN[::-1]])
    hidden, table, bias = inputs = [tf.constant(each) for each in (both, TABLE, BIAS)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        logits = tf.split(tf.matmul(hidden, table, transpose_b=True) + bias, 2)
        loss = SCALE * tf.reduce_sum(pair_losses(TARGETS, tuple(logits), terms, 0.1) * tf.cast(TARGETS != 0, "float32"))
    expected = [loss, *tape.gradient(loss, inputs)]
    compute = jax.jit(
        jax.value_and_grad(lambda h, head: scaled_loss(h, head, TARGETS, np.float32(SCALE), 0.1, terms), (0, 1))
    )
    for one, other in zip(jax.tree.leaves(compute(both, Head(TABLE, BIAS))), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6 * np.abs(other).max())
