"""The operations where TensorFlow has a faster way on the CPU; equal to `plain.py` (the tests say how closely).

Each saves passes over memory, which is what a small model's training step on a
CPU spends its time on, not the operations themselves.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from t2t_keras.layers.kernels import plain

Tensor = Any


def linear(inputs: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
    """`plain.linear` as one two-dimensional product with a fused bias, whose gradient is one reduction."""
    inputs = tf.convert_to_tensor(inputs)
    kernel = tf.convert_to_tensor(kernel)
    rows = inputs if inputs.shape.rank == 2 else tf.reshape(inputs, [-1, kernel.shape[0]])  # --> [rows, d_in]
    dtype = plain.product_dtype(inputs, kernel)
    outputs = tf.cast(tf.matmul(tf.cast(rows, dtype), tf.cast(kernel, dtype)), inputs.dtype)  # --> [rows, d_out]
    if bias is not None:
        outputs = tf.nn.bias_add(outputs, tf.cast(tf.convert_to_tensor(bias), inputs.dtype))
    if inputs.shape.rank == 2:
        return outputs
    shape = tf.concat([tf.shape(inputs)[:-1], [kernel.shape[1]]], 0)
    outputs = tf.reshape(outputs, shape)  # --> [..., d_out]
    outputs.set_shape([*inputs.shape[:-1], kernel.shape[1]])
    return outputs


def layer_normalization(inputs: Tensor, scale: Tensor, offset: Tensor, epsilon: float) -> Tensor:
    """`plain.layer_normalization` with its gradient written out (Ba et al., 2016), on rows of the last axis."""
    inputs = tf.convert_to_tensor(inputs)
    rows = tf.cast(inputs, tf.float32)
    rows = rows if inputs.shape.rank == 2 else tf.reshape(rows, [-1, inputs.shape[-1]])  # --> [rows, d_model]
    normalised = _layer_normalization(
        rows, tf.convert_to_tensor(scale), tf.convert_to_tensor(offset), tf.constant(epsilon)
    )
    if inputs.shape.rank != 2:
        normalised = tf.reshape(normalised, tf.shape(inputs))
    return tf.cast(normalised, inputs.dtype)


@tf.custom_gradient
def _layer_normalization(x: Tensor, scale: Tensor, offset: Tensor, epsilon: Tensor) -> Any:
    centred = x - tf.reduce_mean(x, -1, keepdims=True)
    inverse_deviation = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), -1, keepdims=True) + epsilon)
    normalised = centred * inverse_deviation

    def gradient(upstream: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        # Means of products with `scale`, as products with a column.
        column = scale[:, None] / tf.cast(tf.size(scale), tf.float32)  # --> [d_model, 1]
        weighted = upstream * normalised
        mean, projection = tf.matmul(upstream, column), tf.matmul(weighted, column)  # --> [rows, 1]
        d_x = inverse_deviation * (upstream * scale - mean - normalised * projection)
        return d_x, _column_sums(weighted), _column_sums(upstream), None

    return normalised * scale + offset, gradient


def _column_sums(x: Tensor) -> Tensor:
    """[rows, width] --> [width], in a third of the time of a reduction over the first axis."""
    return tf.raw_ops.BiasAddGrad(out_backprop=x)


def embedding_lookup(table: Tensor, token_ids: Tensor) -> Tensor:
    """`plain.embedding_lookup` without its treatment of negative ids; its gradient is one segment sum."""
    return tf.gather(tf.convert_to_tensor(table), token_ids)  # --> [..., d_model]


def softmax(inputs: Tensor) -> Tensor:
    """`plain.softmax` without its warning about an axis of one element, which a sentence of one token has."""
    return tf.nn.softmax(inputs)


def take_rows(inputs: Tensor, rows: Tensor) -> Tensor:
    """`plain.take_rows`, whose gradient is written and not added up, since no row comes twice."""

    @tf.custom_gradient
    def take(x: Tensor) -> tuple[Tensor, Callable]:
        shape = tf.shape(x)
        flat = tf.reshape(x, [-1, inputs.shape[-1]])  # --> [batch * length, width]
        return tf.gather(flat, rows), lambda upstream: _put(upstream, rows, shape)

    return take(tf.convert_to_tensor(inputs))


def put_rows(values: Tensor, rows: Tensor, shape: tuple) -> Tensor:
    """`plain.put_rows` with its gradient written out."""

    @tf.custom_gradient
    def put(x: Tensor) -> tuple[Tensor, Callable]:
        return _put(x, rows, tf.stack(shape)), lambda upstream: tf.gather(
            tf.reshape(upstream, [-1, values.shape[-1]]), rows
        )

    return tf.ensure_shape(put(tf.convert_to_tensor(values)), [None, None, values.shape[-1]])


def _put(values: Tensor, rows: Tensor, shape: Tensor) -> Tensor:
    """[rows, width] --> [batch, length, width], zero elsewhere."""
    flat = tf.scatter_nd(rows[:, None], values, [shape[0] * shape[1], shape[2]])  # --> [batch * length, width]
    return tf.reshape(flat, shape)


def dropout(inputs: Tensor, rate: float, seed: Tensor) -> Tensor:
    """`plain.dropout` with one or two random bytes an element, where a float takes four.

    The rate is rounded to a multiple of 1/256 when that is within 0.005 of it
    (0.1 is 26/256, 0.3 is 77/256), else to one of 1/65536; the scale is of the
    rounded rate, so the expectation is exact.
    """
    inputs = tf.convert_to_tensor(inputs)
    dtype, levels = (tf.uint8, 256) if abs(round(rate * 256) / 256 - rate) <= 0.005 else (tf.uint16, 65536)
    threshold = round(rate * levels)
    count = tf.size(inputs)
    words = tf.random.stateless_uniform(
        [(count * dtype.size + 3) // 4], seed, minval=None, maxval=None, dtype=tf.int32, alg="philox"
    )
    bits = tf.reshape(tf.bitcast(words, dtype), [-1])[:count]
    keep = tf.reshape(tf.cast(bits >= tf.constant(threshold, dtype), inputs.dtype), tf.shape(inputs))
    return inputs * (keep * tf.cast(levels / (levels - threshold), inputs.dtype))
