"""TensorFlow versions of `plain.py` with fewer passes over memory, which dominate a small model's step on a CPU."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from t2t_keras.layers.kernels import plain

Tensor = Any

_PHILOX = 1  # TensorFlow's number for the Philox random generator


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
    return tf.reshape(outputs, [*shape(inputs)[:-1], kernel.shape[1]])  # --> [..., d_out]


def layer_normalization(inputs: Tensor, scale: Tensor, offset: Tensor, epsilon: float) -> Tensor:
    """`plain.layer_normalization` with a hand-written gradient (Ba et al., 2016)."""

    @tf.custom_gradient
    def normalise(x: Tensor, scale: Tensor, offset: Tensor) -> tuple[Tensor, Callable]:
        centred = x - tf.reduce_mean(x, -1, keepdims=True)
        inverse_deviation = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), -1, keepdims=True) + epsilon)
        normalised = centred * inverse_deviation

        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            # Means of products with `scale`, as products of rows with a column.
            column = scale[:, None] / scale.shape[0]  # --> [d_model, 1]
            weighted = upstream * normalised
            mean, projection = linear(upstream, column, None), linear(weighted, column, None)  # --> [..., 1]
            d_x = inverse_deviation * (upstream * scale - mean - normalised * projection)
            return d_x, _column_sums(weighted), _column_sums(upstream)

        return normalised * scale + offset, gradient

    inputs = tf.convert_to_tensor(inputs)
    outputs = normalise(tf.cast(inputs, tf.float32), tf.convert_to_tensor(scale), tf.convert_to_tensor(offset))
    return tf.cast(outputs, inputs.dtype)


def _column_sums(x: Tensor) -> Tensor:
    """[..., width] --> [width], in a third of the time of a reduction over the other axes."""
    return tf.raw_ops.BiasAddGrad(out_backprop=x)


def embedding_lookup(table: Tensor, token_ids: Tensor) -> Tensor:
    """`plain.embedding_lookup` without support for negative ids; its gradient is one segment sum."""
    return tf.gather(tf.convert_to_tensor(table), token_ids)  # --> [..., d_model]


def softmax(inputs: Tensor) -> Tensor:
    """`plain.softmax` without Keras's warning about an axis of length 1, which a one-token sentence has."""
    return tf.nn.softmax(inputs)


def take_rows(inputs: Tensor, rows: Tensor) -> Tensor:
    """`plain.take_rows` with a gradient that writes rows instead of adding them, since no row occurs twice."""
    inputs = tf.convert_to_tensor(inputs)

    @tf.custom_gradient
    def take(x: Tensor) -> tuple[Tensor, Callable]:
        flat = tf.reshape(x, [-1, x.shape[-1]])  # --> [batch * length, width]
        return tf.gather(flat, rows), lambda upstream: _put(upstream, rows, inputs)

    return take(inputs)


def put_rows(values: Tensor, rows: Tensor, like: Tensor) -> Tensor:
    """`plain.put_rows` with a hand-written gradient."""

    @tf.custom_gradient
    def put(x: Tensor) -> tuple[Tensor, Callable]:
        return _put(x, rows, like), lambda upstream: tf.gather(tf.reshape(upstream, [-1, x.shape[-1]]), rows)

    outputs = put(tf.convert_to_tensor(values))
    outputs.set_shape(like.shape)
    return outputs


def _put(values: Tensor, rows: Tensor, like: Tensor) -> Tensor:
    """[rows, width] --> [batch, length, width], zero elsewhere."""
    batch, length, width = shape(like)
    flat = tf.scatter_nd(tf.expand_dims(rows, 1), values, [batch * length, width])  # --> [batch * length, width]
    return tf.reshape(flat, [batch, length, width])


def dropout(inputs: Tensor, rate: float, seed: Tensor) -> Tensor:
    """`plain.dropout` with one or two random bytes per element instead of four; the seed is the key of Philox.

    The rate is rounded to a multiple of 1/256 if that is within 0.005 (0.1 becomes 26/256), else to one of 1/65536. The
    scale uses the rounded rate, so the expectation is exact.
    """
    inputs = tf.convert_to_tensor(inputs)
    dtype, levels = (tf.uint8, 256) if abs(round(rate * 256) / 256 - rate) <= 0.005 else (tf.uint16, 65536)
    threshold = round(rate * levels)
    bits = _random(shape(inputs), dtype, seed)
    kept = tf.cast(bits >= tf.constant(threshold, dtype), inputs.dtype)
    factors = kept * tf.cast(levels / (levels - threshold), inputs.dtype)

    @tf.custom_gradient
    def drop(x: Tensor) -> tuple[Tensor, Callable]:
        return x * factors, lambda upstream: upstream * factors

    return drop(inputs)


def _random(dimensions: list[Tensor | int], dtype: tf.DType, seed: Tensor) -> Tensor:
    """Random integers of one or two bytes in the given dimensions, a function of the seed alone."""
    in_word = 4 // dtype.size  # values per random word
    last = dimensions[-1] if dimensions else 1
    fits = isinstance(last, int) and last % in_word == 0  # nothing to cut off then
    if fits:
        words_shape = [*dimensions[:-1], last // in_word]
    else:
        count = tf.reduce_prod(dimensions)
        words_shape = [(count + in_word - 1) // in_word]
    words = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.stack(words_shape),
        key=tf.bitcast([seed], tf.uint64),  # --> [1]
        counter=tf.constant([0, 0], tf.uint64),
        alg=_PHILOX,
        dtype=tf.int32,
    )
    values = tf.bitcast(words, dtype)  # --> [..., in_word]
    if not fits:
        values = tf.reshape(values, [-1])[:count]
    return tf.reshape(values, dimensions)


def add(inputs: Tensor, outputs: Tensor) -> Tensor:
    """`plain.add` as an operation that never broadcasts, so its gradient needs no sums."""
    return tf.add_n([inputs, outputs])


def scores(queries: Tensor, keys: Tensor) -> Tensor:
    """`plain.scores` without a transposed copy of the keys."""
    return tf.matmul(queries, keys, transpose_b=True)  # --> [..., query_len, key_len]


def shape(x: Tensor) -> list[Tensor | int]:
    """`plain.shape` with one operation that splits off all dimensions."""
    static = list(x.shape)
    if None not in static:
        return static
    dynamic = tf.unstack(tf.shape(x), len(static))
    return [size if known is None else known for known, size in zip(static, dynamic, strict=True)]


def reshape_like(values: Tensor, like: Tensor) -> Tensor:
    """`plain.reshape_like` with a single operation for the shape."""
    outputs = tf.reshape(values, tf.shape(like))
    outputs.set_shape(like.shape)
    return outputs
