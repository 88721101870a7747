"""Fuses the output projection, softmax and label-smoothed loss, without storing all logits.

The gradient of the loss with respect to a row of logits is softmax(logits) minus the smoothed target, which is known in
the forward pass. Loss and gradients are therefore computed together, one chunk of rows at a time, and only the
gradients are kept. The loss equals `t2t_keras.losses.token_losses`; tests compare the two.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.tensor import Tensor
from t2t_keras.training.updates import Head

# Logits per chunk on a CPU: small enough to stay in cache, large enough that accumulating the table's gradient over
# chunks costs little.
_CPU_CHUNK_ELEMENTS = 2**22
# Logits per chunk on a GPU or TPU, which are fast at large products: 128 MiB in float32.
_ACCELERATOR_CHUNK_ELEMENTS = 2**25


class FusedLoss(NamedTuple):
    """A summed loss, and the gradients of the sum of the scaled token losses.

    Attributes:
        loss_sum: float32 scalar, the unscaled sum of the token losses, without padding.
        d_hidden: gradient of the hidden states, [batch, target_len, d_model] in their dtype.
        d_head: gradients of the head's weights, float32.
    """

    loss_sum: Tensor
    d_hidden: Tensor
    d_head: Head


class Prediction(NamedTuple):
    """The predictions of a chunk of rows, float32.

    Attributes:
        logits: [chunk, vocab].
        probabilities: softmax of the logits, [chunk, vocab].
        label_logits: the labels' logits, [chunk].
        normalisers: log of the sum of exp(logits), [chunk].
    """

    logits: Tensor
    probabilities: Tensor
    label_logits: Tensor
    normalisers: Tensor


class ChunkedLoss:
    """The label-smoothed loss (section 5.4), computed with its gradients in chunks of rows.

    Args:
        head: weights of the output head.
        label_smoothing: epsilon, in [0, 1).
        dtype: dtype of the hidden states.
        for_cpu: whether to use chunks that fit a CPU's caches. False uses larger chunks and no conditional branch.
    """

    def __init__(self, head: Head, label_smoothing: float, dtype: tf.DType, for_cpu: bool) -> None:
        self._head, self._smoothing = Head(tf.convert_to_tensor(head.table), head.bias), label_smoothing
        self._for_cpu = for_cpu
        self._matrix = tf.cast(self._head.table, dtype)
        elements = _CPU_CHUNK_ELEMENTS if for_cpu else _ACCELERATOR_CHUNK_ELEMENTS
        self._chunk_rows = max(elements // head.table.shape[0], 64)

    def __call__(self, hidden: Tensor, targets: Tensor, scale: Tensor | float, skip_padding: bool) -> FusedLoss:
        """Computes the loss of whole targets, and its scaled gradients.

        Args:
            hidden: hidden states of the decoder, float [batch, target_len, d_model].
            targets: int32 [batch, target_len], padded with 0.
            scale: factor on the loss of each token in the gradients; a number, or float32 that broadcasts to the shape
                of `targets`.
            skip_padding: whether to drop padded positions first. False keeps every shape static, which XLA needs.
        """
        rows = tf.reshape(hidden, [-1, hidden.shape[-1]])  # --> [batch * target_len, d_model]
        labels = tf.reshape(targets, [-1])  # --> [batch * target_len]
        scales = tf.broadcast_to(tf.cast(scale, tf.float32), tf.shape(targets))  # --> [batch, target_len]
        scales = tf.reshape(scales, [-1])  # --> [batch * target_len]
        if skip_padding:
            tokens = tf.where(labels != 0)  # --> [tokens, 1]
            loss_sum, d_rows, d_head = self.loss(*(tf.gather_nd(values, tokens) for values in (rows, labels, scales)))
            d_rows = tf.scatter_nd(tokens, d_rows, tf.shape(rows, tf.int64))  # --> [batch * target_len, d_model]
        else:
            loss_sum, d_rows, d_head = self.static_loss(rows, labels, scales)
        return FusedLoss(loss_sum, tf.reshape(d_rows, tf.shape(hidden)), d_head)

    def loss(self, rows: Tensor, labels: Tensor, scales: Tensor) -> tuple[Tensor, Tensor, Head]:
        """Returns the sum of the losses, and the scaled gradients of `rows` and of the head.

        Args:
            rows: hidden states, [rows, d_model].
            labels: int32 [rows], without padding.
            scales: float32 [rows].
        """
        num_chunks = self._count_chunks(tf.shape(rows)[0])
        unsmoothed = self._loop(rows, labels, scales, num_chunks, is_static=False)
        losses, d_rows, d_head = self._smooth(rows, *unsmoothed, scales)
        return tf.reduce_sum(losses), d_rows, d_head

    def static_loss(self, rows: Tensor, labels: Tensor, scales: Tensor) -> tuple[Tensor, Tensor, Head]:
        """Like `loss`, but label 0 is padding, and all chunks have one static size, which XLA needs."""
        real = tf.cast(labels != 0, tf.float32)
        rows, scales = rows * tf.cast(real, rows.dtype)[:, None], scales * real  # padding contributes to no gradient
        count = rows.shape[0] if rows.shape[0] is not None else tf.shape(rows)[0]
        num_chunks = self._count_chunks(count)
        missing = num_chunks * self._chunk_rows - count
        padded_rows = tf.pad(rows, [[0, missing], [0, 0]])
        padded_labels, padded_scales = (tf.pad(values, [[0, missing]]) for values in (labels, scales))
        losses, d_rows, d_head = self._loop(padded_rows, padded_labels, padded_scales, num_chunks, is_static=True)
        losses, d_rows, d_head = self._smooth(rows, losses[:count], d_rows[:count], d_head, scales)
        return tf.reduce_sum(losses * real), d_rows, d_head

    def _count_chunks(self, count: Tensor | int) -> Tensor:
        """Returns the number of chunks for `count` rows, at least 1: without rows, the gradients are zeros."""
        return tf.maximum((count + self._chunk_rows - 1) // self._chunk_rows, 1)

    def _loop(
        self, rows: Tensor, labels: Tensor, scales: Tensor, num_chunks: Tensor, *, is_static: bool
    ) -> tuple[Tensor, Tensor, Head]:
        """Returns losses, float32 [rows], and gradients of all chunks, without the uniform part of the target.

        The gradients of the rows are not scaled yet; those of the head are.
        """

        def chunk(index: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
            begin, size = index * self._chunk_rows, self._chunk_rows
            if is_static:
                parts = (tf.slice(values, [begin], [size]) for values in (labels, scales))
                return self._chunk(tf.slice(rows, [begin, 0], [size, rows.shape[1]]), *parts)
            end = begin + size  # the last chunk may be shorter
            return self._chunk(rows[begin:end], labels[begin:end], scales[begin:end])

        def add_chunk(index: Tensor, losses: Any, d_rows: Any, d_head: list[Tensor]) -> tuple:
            chunk_losses, chunk_d_rows, chunk_d_head = chunk(index)
            d_head = [total + part for total, part in zip(d_head, chunk_d_head, strict=True)]
            return index + 1, losses.write(index, chunk_losses), d_rows.write(index, chunk_d_rows), d_head

        losses, d_rows = (
            tf.TensorArray(dtype, num_chunks, element_shape=shape, infer_shape=False)
            for dtype, shape in ((tf.float32, [None]), (rows.dtype, [None, rows.shape[1]]))
        )
        # The first chunk initialises the head's gradient; the loop adds the others.
        first_losses, first_d_rows, d_head = chunk(tf.constant(0))
        start = (tf.constant(1), losses.write(0, first_losses), d_rows.write(0, first_d_rows), d_head)
        _, losses, d_rows, d_head = tf.while_loop(
            lambda index, *_: index < num_chunks, add_chunk, start, parallel_iterations=1
        )
        return losses.concat(), d_rows.concat(), Head(*d_head)

    def _chunk(self, h: Tensor, y: Tensor, scales: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Computes one chunk: hidden states `h`, [chunk, d_model], with labels `y`, int32 [chunk].

        Returns losses without the uniform part, unscaled gradients of `h`, and scaled gradients of the head's weights.
        """
        label_share = 1.0 - self._smoothing
        prediction = self._prediction(h, y)
        losses = prediction.normalisers - label_share * prediction.label_logits
        with tf.control_dependencies([losses]):  # so that the probabilities can be updated in place
            errors = subtracted(prediction.probabilities, y, label_share)
        d_h, d_head = self._gradients(h, errors, scales)
        return losses, d_h, d_head

    def _prediction(self, h: Tensor, y: Tensor) -> Prediction:
        """Projects hidden states `h`, [chunk, d_model], with labels `y`, int32 [chunk], to the vocabulary."""
        logits = tf.cast(tf.matmul(h, self._matrix, transpose_b=True), tf.float32)  # --> [chunk, vocab]
        if self._head.bias is not None:
            logits += self._head.bias
        probabilities = tf.nn.softmax(logits)
        label_logits = tf.gather(logits, y, batch_dims=1)  # --> [chunk]
        if self._for_cpu:
            normalisers = _log_normalisers(logits, probabilities, label_logits, y)  # --> [chunk]
        else:
            normalisers = tf.reduce_logsumexp(logits, -1)  # --> [chunk]
        return Prediction(logits, probabilities, label_logits, normalisers)

    def _gradients(self, h: Tensor, errors: Tensor, scales: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Returns unscaled gradients of `h`, and scaled gradients of the head's weights.

        Args:
            h: hidden states, [chunk, d_model].
            errors: gradients of the logits, float32 [chunk, vocab].
            scales: float32 [chunk].
        """
        d_bias = []
        if self._head.bias is not None:
            d_bias = [tf.linalg.matvec(errors, scales, transpose_a=True)]  # --> [vocab]
        errors = tf.cast(errors, h.dtype)
        d_table = tf.matmul(errors, _scale_rows(h, scales), transpose_a=True)  # --> [vocab, d_model]
        d_table = tf.cast(d_table, tf.float32)
        return tf.matmul(errors, self._matrix), [d_table, *d_bias]

    def _smooth(
        self, rows: Tensor, losses: Tensor, d_rows: Tensor, d_head: Head, scales: Tensor
    ) -> tuple[Tensor, Tensor, Head]:
        """Adds the uniform part of the smoothed target, and scales the gradients of the rows."""
        table, bias = self._head
        mean_row = tf.reduce_mean(table, 0)  # --> [d_model]; a row's mean logit is its product with this
        states, d_states = self._smoothed_states(tf.cast(rows, tf.float32), self._smoothing * mean_row)
        losses -= self._smoothing * tf.linalg.matvec(states, mean_row)  # --> [rows]
        d_rows = _scale_rows(d_rows - tf.cast(d_states, d_rows.dtype), scales)
        share = self._smoothing / table.shape[0]
        d_table = d_head.table - share * tf.linalg.matvec(states, scales, transpose_a=True)
        if bias is None:
            return losses, d_rows, Head(d_table)
        return (
            losses - self._smoothing * tf.reduce_mean(bias),
            d_rows,
            Head(d_table, d_head.bias - share * tf.reduce_sum(scales)),
        )

    def _smoothed_states(self, rows: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the hidden states to which the uniform part of the target applies, and its gradient of a row.

        Args:
            rows: float32 [rows, width of a row].
            gradient: gradient of a hidden state, float32 [d_model].

        Returns:
            float32 [rows, d_model] and [width of a row].
        """
        return rows, gradient


def subtracted(values: Tensor, labels: Tensor, amount: float) -> Tensor:
    """Subtracts `amount` from each row's value at its label: float32 [chunk, vocab], int32 [chunk]."""
    places = tf.stack([tf.range(tf.size(labels)), labels], axis=1)  # --> [chunk, 2]
    return tf.tensor_scatter_nd_sub(values, places, tf.fill(tf.shape(labels), amount))


def _scale_rows(rows: Tensor, scales: Tensor) -> Tensor:
    """Multiplies each row of [rows, d_model] by its scale, float32 [rows], in float32; keeps the dtype of `rows`."""
    return tf.cast(tf.cast(rows, tf.float32) * scales[:, None], rows.dtype)


def _log_normalisers(logits: Tensor, probabilities: Tensor, label_logits: Tensor, labels: Tensor) -> Tensor:
    """Computes log(sum(exp(logits))) of each row, float32 [chunk], without a second pass over [chunk, vocab].

    The result is any logit minus its log-probability. Those of the label are already known. If some label's probability
    is too small for float32, the largest logit of each row is used instead.
    """
    label_probabilities = tf.gather(probabilities, labels, batch_dims=1)  # --> [chunk]
    return tf.cond(
        tf.reduce_all(label_probabilities > 1e-30),
        lambda: label_logits - tf.math.log(label_probabilities),
        lambda: tf.reduce_max(logits, -1) - tf.math.log(tf.reduce_max(probabilities, -1)),
    )
