"""Projection, softmax and label-smoothed loss in one, without the logits in memory.

The gradient of the loss with respect to a row of logits, softmax(logits) minus the smoothed target, is known in the
forward pass. So loss and gradients are computed there, chunk by chunk of rows, and only the gradients are kept. The
formula is that of `t2t_keras.losses.token_losses`; tests hold the two equal.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.tensor import Tensor
from t2t_keras.training.updates import Head

# Elements of one chunk of logits on a CPU: small enough to stay near the cache, large enough that adding each chunk's
# share to the matrix's gradient costs little.
_CPU_CHUNK_ELEMENTS = 2**22
# On a GPU or TPU, which are fast at large products: an eighth of a GiB in float32.
_ACCELERATOR_CHUNK_ELEMENTS = 2**25


class FusedLoss(NamedTuple):
    """A loss, and the gradients of the sum of `scale` times each token's loss.

    Attributes:
        loss_sum: float32 scalar, the unscaled sum of the losses of all tokens, without padding.
        d_hidden: [batch, target_len, d_model], of the states' dtype.
        d_head: gradients of the head's weights.
    """

    loss_sum: Tensor
    d_hidden: Tensor
    d_head: Head


def fused_loss(
    hidden: Tensor,
    head: Head,
    targets: Tensor,
    label_smoothing: float,
    *,
    scale: Tensor | float = 1.0,
    skip_padding: bool = True,
    for_cpu: bool = True,
) -> FusedLoss:
    """The label-smoothed loss of `targets`, int32 [batch, target_len] padded with 0, with its gradients times `scale`.

    `hidden` are the decoder's hidden states, float [batch, target_len, d_model]. `scale` is a number, or float32 of any
    shape that broadcasts to that of the targets. `skip_padding` computes rows of tokens only; False keeps every shape
    static, as XLA needs. `for_cpu` takes chunks that stay near a CPU's caches; False takes large ones, without a
    branch.
    """
    head = Head(tf.convert_to_tensor(head.table), head.bias)
    chunks = _Chunks(head, label_smoothing, hidden.dtype, for_cpu)
    rows = tf.reshape(hidden, [-1, head.table.shape[1]])  # --> [batch * target_len, d_model]
    labels = tf.reshape(targets, [-1])  # --> [batch * target_len]
    scales = tf.reshape(tf.broadcast_to(tf.cast(scale, tf.float32), tf.shape(targets)), [-1])
    if skip_padding:
        kept = tf.where(labels != 0)  # --> [tokens, 1]
        loss_sum, d_rows, d_head = chunks.loss(*(tf.gather_nd(values, kept) for values in (rows, labels, scales)))
        d_rows = tf.scatter_nd(kept, d_rows, tf.shape(rows, tf.int64))  # --> [batch * target_len, d_model]
    else:
        loss_sum, d_rows, d_head = chunks.static_loss(rows, labels, scales)
    return FusedLoss(loss_sum, tf.reshape(d_rows, tf.shape(hidden)), d_head)


class _Chunks:
    """Computes losses and gradients chunk by chunk, of rows of one dtype."""

    def __init__(self, head: Head, label_smoothing: float, dtype: tf.DType, for_cpu: bool) -> None:
        self._head, self._smoothing, self._for_cpu = head, label_smoothing, for_cpu
        self._matrix = tf.cast(head.table, dtype)
        elements = _CPU_CHUNK_ELEMENTS if for_cpu else _ACCELERATOR_CHUNK_ELEMENTS
        self._chunk_rows = max(elements // head.table.shape[0], 64)

    def loss(self, rows: Tensor, labels: Tensor, scales: Tensor) -> tuple[Tensor, Tensor, Head]:
        """Sum of the losses, and scaled gradients, of rows, [rows, d_model], with labels, int32 [rows].

        `scales` are float32 [rows].
        """
        num_chunks = self._number_of(tf.shape(rows)[0])
        unsmoothed = self._all(rows, labels, scales, num_chunks, is_static=False)
        losses, d_rows, d_head = self._smoothed(rows, *unsmoothed, scales)
        return tf.reduce_sum(losses), d_rows, d_head

    def static_loss(self, rows: Tensor, labels: Tensor, scales: Tensor) -> tuple[Tensor, Tensor, Head]:
        """Like `loss`, with rows of padding, which have label 0, in chunks of one size that XLA knows in advance."""
        real = tf.cast(labels != 0, tf.float32)
        rows, scales = rows * tf.cast(real, rows.dtype)[:, None], scales * real  # padding adds nothing to any gradient
        count = rows.shape[0] if rows.shape[0] is not None else tf.shape(rows)[0]
        num_chunks = self._number_of(count)
        missing = num_chunks * self._chunk_rows - count
        padded_rows = tf.pad(rows, [[0, missing], [0, 0]])
        padded_labels, padded_scales = (tf.pad(values, [[0, missing]]) for values in (labels, scales))
        losses, d_rows, d_head = self._all(padded_rows, padded_labels, padded_scales, num_chunks, is_static=True)
        losses, d_rows, d_head = self._smoothed(rows, losses[:count], d_rows[:count], d_head, scales)
        return tf.reduce_sum(losses * real), d_rows, d_head

    def _number_of(self, count: Tensor | int) -> Tensor:
        """Number of chunks for `count` rows; at least one, because no rows have gradients too: zeros."""
        return tf.maximum((count + self._chunk_rows - 1) // self._chunk_rows, 1)

    def _all(
        self, rows: Tensor, labels: Tensor, scales: Tensor, num_chunks: Tensor, *, is_static: bool
    ) -> tuple[Tensor, Tensor, Head]:
        """The losses of all rows without the uniform part, float32 [rows], and both gradients; rows' not scaled."""

        def chunk(index: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
            begin, size = index * self._chunk_rows, self._chunk_rows
            if is_static:
                parts = (tf.slice(values, [begin], [size]) for values in (labels, scales))
                return self._chunk(tf.slice(rows, [begin, 0], [size, rows.shape[1]]), *parts)
            end = begin + size  # the last chunk may be shorter
            return self._chunk(rows[begin:end], labels[begin:end], scales[begin:end])

        def add_chunk(index: Tensor, losses: Any, d_rows: Any, d_head: list[Tensor]) -> tuple:
            chunk_losses, chunk_d_rows, chunk_d_head = chunk(index)
            d_head = [before + more for before, more in zip(d_head, chunk_d_head, strict=True)]
            return index + 1, losses.write(index, chunk_losses), d_rows.write(index, chunk_d_rows), d_head

        losses, d_rows = (
            tf.TensorArray(dtype, num_chunks, element_shape=shape, infer_shape=False)
            for dtype, shape in ((tf.float32, [None]), (rows.dtype, [None, rows.shape[1]]))
        )
        # The shares of the other chunks in the matrix's gradient are added to that of the first.
        first_losses, first_d_rows, d_head = chunk(tf.constant(0))
        start = (tf.constant(1), losses.write(0, first_losses), d_rows.write(0, first_d_rows), d_head)
        _, losses, d_rows, d_head = tf.while_loop(
            lambda index, *_: index < num_chunks, add_chunk, start, parallel_iterations=1
        )
        return losses.concat(), d_rows.concat(), Head(*d_head)

    def _chunk(self, h: Tensor, y: Tensor, scales: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Losses, without the uniform part, and gradients of rows `h`, [chunk, d_model], with labels `y`, [chunk]."""
        gold = 1.0 - self._smoothing
        logits = tf.cast(tf.matmul(h, self._matrix, transpose_b=True), tf.float32)  # --> [chunk, vocab]
        if self._head.bias is not None:
            logits += self._head.bias
        probabilities = tf.nn.softmax(logits)
        label_logits = tf.gather(logits, y, batch_dims=1)  # --> [chunk]
        if self._for_cpu:
            normalisers = _log_normalisers(logits, probabilities, label_logits, y)  # --> [chunk]
        else:
            normalisers = tf.reduce_logsumexp(logits, -1)  # --> [chunk]
        losses = normalisers - gold * label_logits
        with tf.control_dependencies([losses]):  # the probabilities can change in place once nothing else reads them
            places = tf.stack([tf.range(tf.size(y)), y], axis=1)  # --> [chunk, 2]
            errors = tf.tensor_scatter_nd_sub(probabilities, places, tf.fill(tf.shape(y), gold))
        d_bias = []
        if self._head.bias is not None:
            d_bias = [tf.linalg.matvec(errors, scales, transpose_a=True)]  # --> [vocab]
        errors = tf.cast(errors, h.dtype)
        d_table = tf.matmul(errors, _scaled(h, scales), transpose_a=True)  # --> [vocab, d_model]
        d_table = tf.cast(d_table, tf.float32)
        return losses, tf.matmul(errors, self._matrix), [d_table, *d_bias]

    def _smoothed(
        self, rows: Tensor, losses: Tensor, d_rows: Tensor, d_head: Head, scales: Tensor
    ) -> tuple[Tensor, Tensor, Head]:
        """Adds the uniform part of the target, the same for all rows, and scales the rows' gradients."""
        table, bias = self._head
        mean_row = tf.reduce_mean(table, 0)  # --> [d_model]; a row's mean logit is its product with this
        rows = tf.cast(rows, tf.float32)
        losses -= self._smoothing * tf.linalg.matvec(rows, mean_row)  # --> [rows]
        d_rows = _scaled(d_rows - tf.cast(self._smoothing * mean_row, d_rows.dtype), scales)
        share = self._smoothing / table.shape[0]
        d_table = d_head.table - share * tf.linalg.matvec(rows, scales, transpose_a=True)
        if bias is None:
            return losses, d_rows, Head(d_table)
        return (
            losses - self._smoothing * tf.reduce_mean(bias),
            d_rows,
            Head(d_table, d_head.bias - share * tf.reduce_sum(scales)),
        )


def _scaled(rows: Tensor, scales: Tensor) -> Tensor:
    """Each of `rows`, [rows, d_model], times its scale, float32 [rows], which is not rounded to the rows' dtype."""
    return tf.cast(tf.cast(rows, tf.float32) * scales[:, None], rows.dtype)


def _log_normalisers(logits: Tensor, probabilities: Tensor, label_logits: Tensor, labels: Tensor) -> Tensor:
    """log(sum(exp(logits))) of each row, float32 [chunk], without another pass over [chunk, vocab].

    It is any logit minus its log-probability: the label's, which is at hand, or the row's largest where some label is
    too improbable for float32.
    """
    label_probabilities = tf.gather(probabilities, labels, batch_dims=1)  # --> [chunk]
    return tf.cond(
        tf.reduce_all(label_probabilities > 1e-30),
        lambda: label_logits - tf.math.log(label_probabilities),
        lambda: tf.reduce_max(logits, -1) - tf.math.log(tf.reduce_max(probabilities, -1)),
    )
