"""Fuses the output projection, softmax and label-smoothed loss on JAX, without storing all logits.

This is the counterpart of `training/fused_loss.py`: gradients are computed in the forward pass, one chunk of rows at a
time. The loss equals `t2t_keras.losses.token_losses` and `pair_losses`; tests compare them.
"""

import functools

import jax
from jax import numpy as jnp

from t2t_keras.losses import PairTerms
from t2t_keras.symbols import PAD_ID
from t2t_keras.tensor import Tensor
from t2t_keras.training.updates import Head

# Logits per chunk: 512 MiB in float32. The rows of a chunk are a multiple of the tile size of matrix units.
_CHUNK_ELEMENTS = 2**27
_TILE = 64


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def scaled_loss(
    hidden: Tensor,
    head: Head,
    targets: Tensor,
    scale: Tensor,
    label_smoothing: float,
    terms: PairTerms | None = None,
) -> Tensor:
    """Computes `scale` times the sum of the token losses; differentiable with respect to `hidden` and `head`.

    Args:
        hidden: float [batch, target_len, d_model]; with `terms`, [2 * batch, target_len, d_model], whose second half
            belongs to the second prediction of the same targets.
        head: weights of the output head; products are computed in the dtype of `hidden`.
        targets: int32 [batch, target_len], padded with 0.
        scale: float32 scalar.
        label_smoothing: epsilon, in [0, 1).
        terms: the factors of the terms of the loss of two predictions; None for a single prediction.

    Returns:
        A float32 scalar.
    """
    return _forward(hidden, head, targets, scale, label_smoothing, terms)[0]


def _forward(
    hidden: Tensor, head: Head, targets: Tensor, scale: Tensor, label_smoothing: float, terms: PairTerms | None
) -> tuple[Tensor, tuple[Tensor, Head]]:
    """Returns the scaled loss, and its gradients with respect to `hidden` and `head`."""
    if terms is not None:
        pairs = jnp.concatenate(jnp.split(hidden, 2), axis=2)  # --> [batch, target_len, 2 * d_model]
        loss, (d_pairs, d_head) = _sum_rows(pairs, head, targets, scale, label_smoothing, terms)
        return loss, (jnp.concatenate(jnp.split(d_pairs, 2, axis=2)), d_head)
    return _sum_rows(hidden, head, targets, scale, label_smoothing, terms)


def _sum_rows(
    hidden: Tensor, head: Head, targets: Tensor, scale: Tensor, label_smoothing: float, terms: PairTerms | None
) -> tuple[Tensor, tuple[Tensor, Head]]:
    """Like `_forward`; with `terms`, both predictions of a target are in one row, [batch, target_len, 2 * d_model]."""
    rows = hidden.reshape(-1, hidden.shape[-1])  # --> [batch * target_len, width]
    labels, count = targets.reshape(-1), rows.shape[0]  # --> [batch * target_len]
    size = max(_CHUNK_ELEMENTS // head.table.shape[0] // _TILE, 1) * _TILE
    if count <= size:
        loss, d_head, d_rows = _chunk(rows, labels, head, scale, label_smoothing, terms)
        return loss, (d_rows.reshape(hidden.shape), d_head)
    missing = -count % size  # rows of padding, without loss and gradient
    rows = jnp.pad(rows, [(0, missing), (0, 0)]).reshape(-1, size, rows.shape[1])  # --> [chunks, size, width]
    labels = jnp.pad(labels, [(0, missing)]).reshape(-1, size)  # --> [chunks, size]

    def add(sums: tuple[Tensor, Head], part: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor, Head], Tensor]:
        *results, d_rows = _chunk(*part, head, scale, label_smoothing, terms)
        return jax.tree.map(jnp.add, sums, tuple(results)), d_rows

    # `scan`, because XLA would merge the matrix products of unrolled chunks, and so undo the chunking.
    zeros = jnp.zeros(()), jax.tree.map(jnp.zeros_like, head)
    (loss, d_head), d_rows = jax.lax.scan(add, zeros, (rows, labels))
    return loss, (d_rows.reshape(-1, rows.shape[-1])[:count].reshape(hidden.shape), d_head)


def _chunk(
    rows: Tensor, labels: Tensor, head: Head, scale: Tensor, label_smoothing: float, terms: PairTerms | None
) -> tuple[Tensor, Head, Tensor]:
    """Computes the scaled loss of `rows`, [rows, d_model] or pairs of them, with labels, int32 [rows].

    Returns the loss, and its gradients with respect to the head and to the rows.
    """
    table = head.table.astype(rows.dtype)  # --> [vocab, d_model]
    states = [rows] if terms is None else jnp.split(rows, 2, axis=1)  # --> [rows, d_model] each
    log_probs = [_log_probabilities(state, table, head.bias) for state in states]  # --> [rows, vocab] each
    # A comparison instead of a scatter, so that XLA can fuse the following operations.
    is_label = jnp.arange(table.shape[0]) == labels[:, None]  # --> [rows, vocab]
    expected = (1.0 - label_smoothing) * is_label + label_smoothing / table.shape[0]
    if terms is None:
        losses, errors = -_row_sums(expected * log_probs[0]), [jnp.exp(log_probs[0]) - expected]
    else:
        losses, errors = _pair(log_probs, expected, terms)
    scales = scale * (labels != PAD_ID)[:, None]  # --> [rows, 1]
    errors = [scales * error for error in errors]  # --> [rows, vocab] each
    d_bias = None if head.bias is None else sum(jnp.sum(error, axis=0) for error in errors)
    errors = [error.astype(rows.dtype) for error in errors]
    contraction = (((0,), (0,)), ((), ()))
    d_table = sum(
        jax.lax.dot_general(error, state, contraction, preferred_element_type="float32")
        for error, state in zip(errors, states, strict=True)
    )
    return jnp.sum(scales * losses), Head(d_table, d_bias), jnp.concatenate([error @ table for error in errors], axis=1)


def _log_probabilities(states: Tensor, table: Tensor, bias: Tensor | None) -> Tensor:
    """Projects hidden states, [rows, d_model], to the log of the softmax, float32 [rows, vocab]."""
    logits = (states @ table.T).astype("float32")  # --> [rows, vocab]
    if bias is not None:
        logits += bias
    return logits - jax.nn.logsumexp(logits, axis=1, keepdims=True)


def _pair(log_probs: list[Tensor], expected: Tensor, terms: PairTerms) -> tuple[Tensor, list[Tensor]]:
    """Returns the losses of two predictions, [rows, 1], and their gradients with respect to both rows of logits.

    Args:
        log_probs: float32 [rows, vocab] of each prediction.
        expected: the smoothed targets, float32 [rows, vocab].
        terms: the factors of the terms.
    """
    w_ce1, w_ce2, w_kl12, w_kl21 = terms
    log_p1, log_p2 = log_probs
    p1, p2, difference = jnp.exp(log_p1), jnp.exp(log_p2), log_p1 - log_p2
    kl12, kl21 = _row_sums(p1 * difference), -_row_sums(p2 * difference)
    cross_entropies = w_ce1 * _row_sums(expected * log_p1) + w_ce2 * _row_sums(expected * log_p2)
    d_z1 = w_ce1 * (p1 - expected) + w_kl12 * p1 * (difference - kl12) + w_kl21 * (p1 - p2)
    d_z2 = w_ce2 * (p2 - expected) - w_kl21 * p2 * (difference + kl21) + w_kl12 * (p2 - p1)
    return w_kl12 * kl12 + w_kl21 * kl21 - cross_entropies, [d_z1, d_z2]


def _row_sums(values: Tensor) -> Tensor:
    """Sums each row: [rows, vocab] --> [rows, 1]."""
    return jnp.sum(values, axis=1, keepdims=True)


def _backward(
    label_smoothing: float, terms: PairTerms | None, gradients: tuple[Tensor, Head], upstream: Tensor
) -> tuple[Tensor, Head, None, None]:
    del label_smoothing, terms
    return *jax.tree.map(lambda gradient: upstream.astype(gradient.dtype) * gradient, gradients), None, None


scaled_loss.defvjp(_forward, _backward)
