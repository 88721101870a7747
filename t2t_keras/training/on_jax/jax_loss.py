"""Fuses the output projection, softmax and label-smoothed loss on JAX, without storing all logits.

This is the counterpart of `training/fused_loss.py`: gradients are computed in the forward pass, one chunk of rows at a
time. The loss equals `t2t_keras.losses.token_losses`; tests compare the two.
"""

import functools

import jax
from jax import numpy as jnp

from t2t_keras.symbols import PAD_ID
from t2t_keras.tensor import Tensor
from t2t_keras.training.updates import Head

# Logits per chunk: 512 MiB in float32. The rows of a chunk are a multiple of the tile size of matrix units.
_CHUNK_ELEMENTS = 2**27
_TILE = 64


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def scaled_loss(hidden: Tensor, head: Head, targets: Tensor, scale: Tensor, label_smoothing: float) -> Tensor:
    """Computes `scale` times the sum of the token losses; differentiable with respect to `hidden` and `head`.

    Args:
        hidden: float [batch, target_len, d_model].
        head: weights of the output head; products are computed in the dtype of `hidden`.
        targets: int32 [batch, target_len], padded with 0.
        scale: float32 scalar.
        label_smoothing: epsilon, in [0, 1).

    Returns:
        A float32 scalar.
    """
    return _forward(hidden, head, targets, scale, label_smoothing)[0]


def _forward(
    hidden: Tensor, head: Head, targets: Tensor, scale: Tensor, label_smoothing: float
) -> tuple[Tensor, tuple[Tensor, Head]]:
    """Returns the scaled loss, and its gradients with respect to `hidden` and `head`."""
    rows = hidden.reshape(-1, hidden.shape[-1])  # --> [batch * target_len, d_model]
    labels, count = targets.reshape(-1), rows.shape[0]
    size = max(_CHUNK_ELEMENTS // head.table.shape[0] // _TILE, 1) * _TILE
    if count <= size:
        loss, d_head, d_rows = _chunk(rows, labels, head, scale, label_smoothing)
        return loss, (d_rows.reshape(hidden.shape), d_head)
    missing = -count % size  # rows of padding, without loss and gradient
    rows = jnp.pad(rows, [(0, missing), (0, 0)]).reshape(-1, size, rows.shape[1])  # --> [chunks, size, d_model]
    labels = jnp.pad(labels, [(0, missing)]).reshape(-1, size)

    def add(sums: tuple[Tensor, Head], part: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor, Head], Tensor]:
        *found, d_rows = _chunk(*part, head, scale, label_smoothing)
        return jax.tree.map(jnp.add, sums, tuple(found)), d_rows

    # `scan`, because XLA would merge the matrix products of unrolled chunks, and so undo the chunking.
    nothing = jnp.zeros(()), jax.tree.map(jnp.zeros_like, head)
    (loss, d_head), d_rows = jax.lax.scan(add, nothing, (rows, labels))
    return loss, (d_rows.reshape(-1, rows.shape[-1])[:count].reshape(hidden.shape), d_head)


def _chunk(
    rows: Tensor, labels: Tensor, head: Head, scale: Tensor, label_smoothing: float
) -> tuple[Tensor, Head, Tensor]:
    """Computes the scaled loss of `rows`, [rows, d_model], with labels, int32 [rows].

    Returns the loss, and its gradients with respect to the head and to the rows.
    """
    table = head.table.astype(rows.dtype)  # --> [vocab, d_model]
    logits = (rows @ table.T).astype("float32")  # --> [rows, vocab]
    if head.bias is not None:
        logits += head.bias
    normalisers = jax.nn.logsumexp(logits, axis=1, keepdims=True)  # --> [rows, 1]
    # A comparison instead of a scatter, so that XLA can fuse the following operations.
    is_label = jnp.arange(table.shape[0]) == labels[:, None]  # --> [rows, vocab]
    expected = (1.0 - label_smoothing) * is_label + label_smoothing / table.shape[0]
    scales = scale * (labels != PAD_ID)[:, None]  # --> [rows, 1]
    loss = jnp.sum(scales * (normalisers - jnp.sum(expected * logits, axis=1, keepdims=True)))
    errors = scales * (jnp.exp(logits - normalisers) - expected)  # --> [rows, vocab]
    d_bias = None if head.bias is None else jnp.sum(errors, axis=0)
    errors = errors.astype(rows.dtype)
    d_table = jax.lax.dot_general(errors, rows, (((0,), (0,)), ((), ())), preferred_element_type="float32")
    return loss, Head(d_table, d_bias), errors @ table


def _backward(
    label_smoothing: float, gradients: tuple[Tensor, Head], upstream: Tensor
) -> tuple[Tensor, Head, None, None]:
    del label_smoothing
    return *jax.tree.map(lambda gradient: upstream.astype(gradient.dtype) * gradient, gradients), None, None


scaled_loss.defvjp(_forward, _backward)
