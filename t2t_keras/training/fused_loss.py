"""Projection, softmax and label-smoothed loss in one, without the logits in memory.

The gradient of the loss with respect to a row of logits is known as soon as
that row is: softmax(logits) minus the smoothed target. So loss and gradients
are taken chunk by chunk of rows in the forward pass, and nothing is kept for
the backward pass but the gradients themselves. The formula is that of
`t2t_keras.losses.token_losses`, and the tests hold the two equal.
"""

from typing import Any, NamedTuple

import tensorflow as tf

Tensor = Any

# Elements of one chunk of logits on a CPU: small enough to stay near the cache, large
# enough that adding each chunk's share to the matrix's gradient costs little.
_CPU_CHUNK_ELEMENTS = 2**22
# On a GPU or TPU: an eighth of a GiB in float32, for large products are what these are fast at.
_ACCELERATOR_CHUNK_ELEMENTS = 2**25


class FusedLoss(NamedTuple):
    """A loss and the gradients of `scale` times that loss.

    Attributes:
        loss_sum: float32 scalar, the sum of the losses of all tokens that are not padding, not scaled.
        d_states: [batch, target_len, d_model], of the states' dtype.
        d_table: float32 [vocab, d_model].
    """

    loss_sum: Tensor
    d_states: Tensor
    d_table: Tensor


def fused_loss(
    states: Tensor,
    table: Tensor,
    targets: Tensor,
    label_smoothing: float,
    *,
    scale: Tensor | float = 1.0,
    skip_padding: bool = True,
    for_cpu: bool = True,
) -> FusedLoss:
    """The label-smoothed loss of tokens with its gradients.

    Args:
        states: float [batch, target_len, d_model], the decoder's output.
        table: float32 [vocab, d_model], the pre-softmax matrix.
        targets: int32 [batch, target_len]; id 0 is padding and weighs nothing.
        label_smoothing: epsilon, in [0, 1).
        scale: float32 scalar that the gradients are multiplied by.
        skip_padding: compute rows of real tokens only; False keeps every shape
            static, as XLA needs.
        for_cpu: take chunks that stay near a CPU's caches; False takes large ones without a branch.
    """
    table = tf.convert_to_tensor(table)
    rows = tf.reshape(states, [-1, table.shape[1]])  # --> [batch * target_len, d_model]
    labels = tf.reshape(targets, [-1])  # --> [batch * target_len]
    if skip_padding:
        kept = tf.where(labels != 0)  # --> [tokens, 1]
        real_rows, real_labels = tf.gather_nd(rows, kept), tf.gather_nd(labels, kept)
        loss_sum, d_rows, d_table = _loss_and_gradients(
            real_rows, table, real_labels, None, label_smoothing, scale, for_cpu=for_cpu
        )
        d_rows = tf.scatter_nd(kept, d_rows, tf.shape(rows, tf.int64))  # --> [batch * target_len, d_model]
    else:
        weights = tf.cast(labels != 0, tf.float32)
        loss_sum, d_rows, d_table = _loss_and_gradients(
            rows, table, labels, weights, label_smoothing, scale, for_cpu=for_cpu
        )
    return FusedLoss(loss_sum, tf.reshape(d_rows, tf.shape(states)), d_table)


def _loss_and_gradients(
    rows: Tensor,
    table: Tensor,
    labels: Tensor,
    weights: Tensor | None,
    label_smoothing: float,
    scale: Tensor | float,
    *,
    for_cpu: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss's sum and its scaled gradients.

    Args:
        rows: float [rows, d_model].
        table: float32 [vocab, d_model].
        labels: int32 [rows].
        weights: float32 [rows], or None for ones.
        label_smoothing: epsilon.
        scale: float32 scalar.
        for_cpu: as in `fused_loss`.

    Returns:
        float32 scalar, [rows, d_model] of the rows' dtype, float32 [vocab, d_model].
    """
    vocab_size, d_model = table.shape
    gold = 1.0 - label_smoothing
    scale = tf.cast(scale, rows.dtype)
    if weights is not None:
        rows = rows * tf.cast(weights, rows.dtype)[:, None]  # a row of zeros adds nothing to the matrix's gradient
    matrix = tf.cast(table, rows.dtype)
    mean_row = tf.reduce_mean(table, 0)  # --> [d_model]; a row's mean logit is its product with this
    chunk_elements = _CPU_CHUNK_ELEMENTS if for_cpu else _ACCELERATOR_CHUNK_ELEMENTS
    chunk_rows = max(chunk_elements // vocab_size, 64)
    # XLA wants every chunk of one size that it knows beforehand; elsewhere the last may be shorter.
    count = rows.shape[0] if rows.shape[0] is not None and weights is not None else tf.shape(rows)[0]
    num_chunks = tf.maximum((count + chunk_rows - 1) // chunk_rows, 1)  # no rows have gradients too: zeros
    if weights is not None:
        missing = num_chunks * chunk_rows - count
        rows, labels = tf.pad(rows, [[0, missing], [0, 0]]), tf.pad(labels, [[0, missing]])

    def chunk(index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The losses of some rows but for the uniform part, and what they add to both gradients."""
        begin = index * chunk_rows
        if weights is None:
            h, y = rows[begin : begin + chunk_rows], labels[begin : begin + chunk_rows]
        else:
            h, y = tf.slice(rows, [begin, 0], [chunk_rows, d_model]), tf.slice(labels, [begin], [chunk_rows])
        # h --> [chunk, d_model], y --> [chunk]
        logits = tf.cast(tf.matmul(h, matrix, transpose_b=True), tf.float32)  # --> [chunk, vocab]
        probabilities = tf.nn.softmax(logits)
        label_logits = tf.gather(logits, y, batch_dims=1)  # --> [chunk]
        if for_cpu:
            normalisers = _log_normalisers(logits, probabilities, label_logits, y)  # --> [chunk]
        else:
            normalisers = tf.reduce_logsumexp(logits, -1)  # --> [chunk]
        losses = normalisers - gold * label_logits
        with tf.control_dependencies([losses]):  # once nothing else reads the probabilities they change in place
            places = tf.stack([tf.range(tf.size(y)), y], axis=1)  # --> [chunk, 2]
            errors = tf.tensor_scatter_nd_sub(probabilities, places, tf.fill(tf.shape(y), gold))
        errors = tf.cast(errors, rows.dtype)
        d_table = tf.cast(tf.matmul(errors, h * scale, transpose_a=True), tf.float32)  # --> [vocab, d_model]
        return losses, d_table, tf.matmul(errors, matrix)

    def add_chunk(index: Tensor, losses: Any, d_table: Tensor, d_rows: Any) -> tuple:
        chunk_losses, chunk_d_table, chunk_d_rows = chunk(index)
        return index + 1, losses.write(index, chunk_losses), d_table + chunk_d_table, d_rows.write(index, chunk_d_rows)

    losses, d_rows = (
        tf.TensorArray(dtype, num_chunks, element_shape=shape, infer_shape=False)
        for dtype, shape in ((tf.float32, [None]), (rows.dtype, [None, d_model]))
    )
    # The first chunk's share of the matrix's gradient is what the others' are added to.
    first_losses, d_table, first_d_rows = chunk(tf.constant(0))
    start = (tf.constant(1), losses.write(0, first_losses), d_table, d_rows.write(0, first_d_rows))
    _, losses, d_table, d_rows = tf.while_loop(
        lambda index, *_: index < num_chunks, add_chunk, start, parallel_iterations=1
    )
    real_rows = tf.cast(rows[:count], tf.float32)
    losses = losses.concat()[:count] - label_smoothing * tf.linalg.matvec(real_rows, mean_row)  # --> [rows]
    # The uniform part of the target, the same for all rows.
    d_rows = (d_rows.concat()[:count] - tf.cast(label_smoothing * mean_row, rows.dtype)) * scale
    d_table -= (label_smoothing / vocab_size) * tf.cast(scale, tf.float32) * tf.reduce_sum(real_rows, 0)
    if weights is not None:
        losses *= weights
        d_rows *= tf.cast(weights, d_rows.dtype)[:, None]
    return tf.reduce_sum(losses), d_rows, d_table


def _log_normalisers(logits: Tensor, probabilities: Tensor, label_logits: Tensor, labels: Tensor) -> Tensor:
    """log(sum(exp(logits))) of each row, float32 [chunk], without another pass over [chunk, vocab].

    Any logit less the logarithm of its probability is the normaliser. The label's
    are at hand; where one is so improbable that float32 has no good value for its
    probability, the largest of each row serve.
    """
    label_probabilities = tf.gather(probabilities, labels, batch_dims=1)  # --> [chunk]
    return tf.cond(
        tf.reduce_all(label_probabilities > 1e-30),
        lambda: label_logits - tf.math.log(label_probabilities),
        lambda: tf.reduce_max(logits, -1) - tf.math.log(tf.reduce_max(probabilities, -1)),
    )
