"""TensorFlow versions of `plain.py` with fewer passes over memory, which dominate a small model's step on a CPU."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from t2t_keras.kernels import plain
from t2t_keras.tensor import Tensor

__all__ = [*plain.__all__]


_PHILOX = 1  # TensorFlow's number for the Philox random generator
_FEW_ROWS = 32  # up to this many, operations avoid oneDNN; see `_has_few_rows`
_LARGE_BEAM = 8  # up to this many rows per sentence, `linear` avoids oneDNN


def linear(inputs: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
    """`plain.linear` as one two-dimensional product and a bias operation whose gradient is a single reduction.

    For a search step, [batch, beam, d_in], Eigen computes the product, because oneDNN has a fixed cost per product.
    """
    inputs = tf.convert_to_tensor(inputs)
    rows = inputs if inputs.shape.rank == 2 else tf.reshape(inputs, [-1, kernel.shape[0]])  # --> [rows, d_in]
    dtype = plain.product_dtype(inputs, kernel)
    rows, kernel = tf.cast(rows, dtype), plain.cast_kernel(kernel, dtype)
    if inputs.shape.rank == 3 and _has_few_rows(inputs, _LARGE_BEAM):
        outputs = tf.raw_ops.BatchMatMulV3(x=rows, y=kernel, Tout=rows.dtype)  # --> [rows, d_out]
    else:
        outputs = tf.matmul(rows, kernel)  # --> [rows, d_out]
    outputs = tf.cast(outputs, inputs.dtype)
    if bias is not None:
        outputs = tf.nn.bias_add(outputs, tf.cast(tf.convert_to_tensor(bias), inputs.dtype))
    if inputs.shape.rank == 2:
        return outputs
    return _reshape(outputs, inputs, [*inputs.shape[:-1], kernel.shape[1]])  # --> [..., d_out]


def _reshape(x: Tensor, like: Tensor, dimensions: Sequence[int | None]) -> Tensor:
    """Reshapes a tensor; dimensions that are unknown before the graph runs (None) are taken from `like`."""
    if dimensions.count(None) <= 1 and 0 not in dimensions:  # `tf.reshape` infers one without further operations
        return tf.reshape(x, [-1 if size is None else size for size in dimensions])
    actual = shape(like)
    return tf.reshape(x, [actual[axis] if size is None else size for axis, size in enumerate(dimensions)])


def grouped_linear(inputs: Tensor, kernels: Tensor, biases: Tensor, counts: Tensor) -> Tensor:
    """`plain.grouped_linear` with one product per group. Shapes depend on the data, so XLA cannot compile this."""
    groups = kernels.shape[0]
    parts = tf.split(inputs, counts, num=groups)  # --> [rows of the group, d_in] each
    kernels = plain.cast_kernel(kernels, plain.product_dtype(inputs, kernels))
    weights = zip(tf.unstack(tf.convert_to_tensor(kernels)), tf.unstack(tf.convert_to_tensor(biases)), strict=True)
    return tf.concat([linear(part, *each) for part, each in zip(parts, weights, strict=True)], 0)  # --> [rows, d_out]


def convolution(inputs: Tensor, kernel: Tensor, bias: Tensor | None, dilation_rate: int, before: int) -> Tensor:
    """`plain.convolution` with a hand-written gradient: one product per kernel position, shifted and added up."""
    inputs = tf.convert_to_tensor(inputs)
    plain.check_float(inputs)
    kernel_size, d_in, d_out = kernel.shape
    if kernel_size == 1:
        return linear(inputs, tf.reshape(kernel, [d_in, d_out]), bias)

    @tf.custom_gradient
    def convolve(x: Tensor, matrices: Tensor) -> tuple[Tensor, Callable]:
        dimensions = shape(x)
        padded = tf.pad(x, [[0, 0], [before, (kernel_size - 1) * dilation_rate - before], [0, 0]])
        if _is_accelerated():  # there slices are cheaper than a gather; on a CPU it is the reverse
            starts = [i * dilation_rate for i in range(kernel_size)]
            windows = tf.concat([padded[:, start : start + dimensions[1]] for start in starts], -1)
        else:
            positions = tf.range(dimensions[1])[:, tf.newaxis] + dilation_rate * tf.range(kernel_size)[tf.newaxis]
            windows = tf.gather(padded, positions, axis=1)  # --> [batch, length, kernel_size, d_in]
        windows = tf.reshape(windows, [-1, kernel_size * d_in])  # --> [batch * length, kernel_size * d_in]

        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
            parts = []
            for i in range(kernel_size):
                part = tf.matmul(upstream, matrices[i], transpose_b=True)  # --> [batch * length, d_in]
                parts.append(_shift(tf.reshape(part, dimensions), i * dilation_rate - before))
            d_matrices = tf.matmul(windows, upstream, transpose_a=True)  # --> [kernel_size * d_in, d_out]
            return tf.add_n(parts), tf.reshape(d_matrices, [kernel_size, d_in, d_out])

        return tf.matmul(windows, tf.reshape(matrices, [kernel_size * d_in, d_out])), gradient

    outputs = convolve(inputs, tf.cast(kernel, inputs.dtype))  # --> [batch * length, d_out]
    if bias is not None:
        outputs = tf.nn.bias_add(outputs, tf.cast(tf.convert_to_tensor(bias), inputs.dtype))
    return tf.reshape(outputs, [*shape(inputs)[:-1], d_out])  # --> [batch, length, d_out]


def _is_accelerated() -> bool:
    """Returns whether there is a GPU or a TPU."""
    return any(device.device_type in ("GPU", "TPU") for device in tf.config.list_logical_devices())


def _shift(x: Tensor, places: int) -> Tensor:
    """Shifts [batch, length, width] to later positions, or to earlier ones if `places` is negative; pads with zeros."""
    if not places:
        return x
    length = shape(x)[1]
    count = tf.minimum(abs(places), length)
    if places > 0:
        return tf.pad(x[:, : length - count], [[0, 0], [count, 0], [0, 0]])
    return tf.pad(x[:, count:], [[0, 0], [0, count], [0, 0]])


def layer_normalization(inputs: Tensor, scale: Tensor, offset: Tensor, epsilon: float) -> Tensor:
    """`plain.layer_normalization` with a hand-written gradient (Ba et al., 2016)."""

    @tf.custom_gradient
    def normalise(x: Tensor, scale: Tensor, offset: Tensor) -> tuple[Tensor, Callable]:
        centred = x - tf.reduce_mean(x, -1, keepdims=True)
        inverse_deviation = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), -1, keepdims=True) + epsilon)
        normalised = centred * inverse_deviation

        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            # Means over d_model of products with `scale`, computed as matrix products with a column.
            column = scale[:, None] / scale.shape[0]  # --> [d_model, 1]
            weighted = upstream * normalised
            mean, projection = linear(upstream, column, None), linear(weighted, column, None)  # --> [..., 1]
            d_x = inverse_deviation * (upstream * scale - mean - normalised * projection)
            return d_x, _column_sums(weighted), _column_sums(upstream)

        return normalised * scale + offset, gradient

    inputs = tf.convert_to_tensor(inputs)
    plain.check_float(inputs)
    outputs = normalise(tf.cast(inputs, tf.float32), tf.convert_to_tensor(scale), tf.convert_to_tensor(offset))
    return tf.cast(outputs, inputs.dtype)


def _column_sums(x: Tensor) -> Tensor:
    """Sums over all axes but the last, [..., width] --> [width], in a third of the time of `tf.reduce_sum`."""
    return tf.raw_ops.BiasAddGrad(out_backprop=x if x.shape.rank > 1 else x[tf.newaxis])


def embedding_lookup(table: Tensor, token_ids: Tensor) -> Tensor:
    """`plain.embedding_lookup` without support for negative ids; its gradient is one segment sum."""
    return tf.gather(plain.with_dense_gradient(table), token_ids)  # --> [..., d_model]


def softmax(inputs: Tensor) -> Tensor:
    """`plain.softmax` without Keras's warning about an axis of length 1, as in a one-token sentence.

    For a few rows it is exp(log_softmax), which does not use oneDNN.
    """
    if inputs.shape.rank > 2 and _has_few_rows(inputs):
        return tf.exp(tf.nn.log_softmax(inputs))
    return tf.nn.softmax(inputs)


def take_rows(inputs: Tensor, rows: Tensor) -> Tensor:
    """`plain.take_rows` with a gradient that writes rows instead of adding them up, since no row occurs twice."""
    inputs = tf.convert_to_tensor(inputs)

    @tf.custom_gradient
    def take(x: Tensor) -> tuple[Tensor, Callable]:
        flat = tf.reshape(x, [-1, x.shape[-1]])  # --> [batch * length, width]
        return tf.gather(flat, rows), lambda upstream: _scatter_rows(upstream, rows, inputs)

    return take(inputs)


def put_rows(values: Tensor, rows: Tensor, like: Tensor) -> Tensor:
    """`plain.put_rows` with a hand-written gradient."""

    @tf.custom_gradient
    def put(x: Tensor) -> tuple[Tensor, Callable]:
        return _scatter_rows(x, rows, like), lambda upstream: tf.gather(tf.reshape(upstream, [-1, x.shape[-1]]), rows)

    outputs = put(tf.convert_to_tensor(values))
    outputs.set_shape(like.shape)
    return outputs


def _scatter_rows(values: Tensor, rows: Tensor, like: Tensor) -> Tensor:
    """Scatters [rows, width] to [batch, length, width], zero elsewhere."""
    batch, length, width = shape(like)
    flat = tf.scatter_nd(tf.expand_dims(rows, 1), values, [batch * length, width])  # --> [batch * length, width]
    return tf.reshape(flat, [batch, length, width])


def dropout(inputs: Tensor, rate: float, seed: Tensor) -> Tensor:
    """`plain.dropout` with one or two random bytes per element instead of four; the seed is the key of Philox.

    The rate is rounded to a multiple of 1/256 if this changes the shares of dropped and of kept elements by at most 2 %
    each (0.1 becomes 26/256), and otherwise to a multiple of 1/65536. The scale uses the rounded rate, so that the
    expectation is exact.
    """
    inputs = tf.convert_to_tensor(inputs)
    is_precise = abs(round(rate * 256) / 256 - rate) <= 0.02 * min(rate, 1 - rate)
    dtype, levels = (tf.uint8, 256) if is_precise else (tf.uint16, 65536)
    threshold = min(max(round(rate * levels), 1 if rate else 0), levels - 1)
    bits = _random(shape(inputs), dtype, seed)
    keep_mask = tf.cast(bits >= tf.constant(threshold, dtype), inputs.dtype)
    factors = keep_mask * tf.cast(levels / (levels - threshold), inputs.dtype)

    @tf.custom_gradient
    def drop(x: Tensor) -> tuple[Tensor, Callable]:
        return x * factors, lambda upstream: upstream * factors

    return drop(inputs)


def normal(dimensions: Sequence[Tensor | int], seed: Tensor) -> Tensor:
    """`plain.normal` with the Philox generator, which TensorFlow seeds with a hash of the seed."""
    return tf.random.stateless_normal(dimensions, seed, alg="philox")


def _random(dimensions: list[Tensor | int], dtype: tf.DType, seed: Tensor) -> Tensor:
    """Random integers of one or two bytes with the given dimensions, determined by the seed."""
    values_per_word = 4 // dtype.size  # a random word has 4 bytes
    last = dimensions[-1] if dimensions else 1
    is_exact = isinstance(last, int) and last % values_per_word == 0  # no surplus values to cut off
    if is_exact:
        words_shape = [*dimensions[:-1], last // values_per_word]
    else:
        count = tf.reduce_prod(tf.stack(dimensions) if dimensions else 1)
        words_shape = [(count + values_per_word - 1) // values_per_word]
    words = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.stack(words_shape),
        key=tf.bitcast([seed], tf.uint64),  # --> [1]
        counter=tf.constant([0, 0], tf.uint64),
        alg=_PHILOX,
        dtype=tf.int32,
    )
    values = tf.bitcast(words, dtype)  # --> [..., values_per_word]
    if not is_exact:
        values = tf.reshape(values, [-1])[:count]
    return tf.reshape(values, dimensions)


def add(inputs: Tensor, outputs: Tensor) -> Tensor:
    """`plain.add` as an operation that never broadcasts, so that its gradient needs no sums."""
    return tf.add_n([inputs, outputs])


def scores(queries: Tensor, keys: Tensor) -> Tensor:
    """`plain.scores` without a transposed copy of the keys and, for a few queries, without oneDNN."""
    queries = tf.convert_to_tensor(queries)
    if _has_few_rows(queries):
        return tf.raw_ops.BatchMatMulV3(x=queries, y=keys, Tout=queries.dtype, adj_y=True)
    return tf.matmul(queries, keys, transpose_b=True)  # --> [..., query_len, key_len]


def matmul(x: Tensor, y: Tensor) -> Tensor:
    """`plain.matmul`, for a few rows without oneDNN."""
    x = tf.convert_to_tensor(x)
    if _has_few_rows(x):
        return tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=x.dtype)
    return tf.matmul(x, y)


def _has_few_rows(x: Tensor, limit: int = _FEW_ROWS) -> bool:
    """Returns whether matrices [..., rows, width] are float32 on a CPU and have few rows, as in a search step.

    oneDNN distributes even the smallest operations over all threads of the processor. Waking the threads takes longer
    than computing the few thousand numbers of a step.
    """
    rows = x.shape[-2]
    return x.dtype == tf.float32 and rows is not None and 0 < rows <= limit and not _is_accelerated()


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """`plain.split_heads`; for a few rows with a gather, because oneDNN's transposition wakes all threads."""
    batch, length, width = x.shape
    if length == 1:
        return _reshape(x, x, [batch, num_heads, 1, width // num_heads])  # --> [batch, heads, 1, d_head]
    if _has_few_rows(x):
        rows = _reshape(x, x, [batch, length * num_heads, width // num_heads])  # --> [batch, length * heads, d_head]
        return tf.gather(rows, _columns(length, num_heads), axis=1)  # --> [batch, heads, length, d_head]
    heads = _reshape(x, x, [batch, length, num_heads, width // num_heads])  # --> [batch, length, heads, d_head]
    return tf.transpose(heads, [0, 2, 1, 3])  # --> [batch, heads, length, d_head]


def merge_heads(heads: Tensor) -> Tensor:
    """`plain.merge_heads`; for a few rows as in `split_heads`."""
    batch, num_heads, length, d_head = heads.shape
    if length == 1 or _has_few_rows(heads):
        if length > 1:
            rows = _reshape(heads, heads, [batch, num_heads * length, d_head])  # --> [batch, heads * length, d_head]
            heads = tf.gather(rows, _columns(num_heads, length), axis=1)  # --> [batch, length, heads, d_head]
        return _reshape(heads, heads, [batch, length, num_heads * d_head])
    heads = tf.transpose(heads, [0, 2, 1, 3])  # --> [batch, length, heads, d_head]
    return _reshape(heads, heads, [batch, length, num_heads * d_head])  # --> [batch, length, heads * d_head]


def _columns(rows: int, columns: int) -> list[list[int]]:
    """The flat indices of each column of a matrix; gathering by them transposes the matrix."""
    return [list(range(column, rows * columns, columns)) for column in range(columns)]


def shape(x: Tensor) -> list[Tensor | int]:
    """`plain.shape` with one operation for all dimensions."""
    static = list(x.shape)
    if None not in static:
        return static
    dynamic = tf.unstack(tf.shape(x), len(static))
    return [size if static_size is None else static_size for static_size, size in zip(static, dynamic, strict=True)]


def reshape_like(values: Tensor, like: Tensor) -> Tensor:
    """`plain.reshape_like` with a single operation for the shape."""
    outputs = tf.reshape(values, tf.shape(like))
    outputs.set_shape(like.shape)
    return outputs


def scan(step: Callable[[Tensor, Tensor], Tensor], start: Tensor, inputs: Tensor) -> Tensor:
    """`plain.scan` as a loop with a known maximum number of iterations, which XLA needs for its gradient."""
    if inputs.shape[1] == 0:  # an empty `TensorArray` has no shape
        return tf.zeros([shape(inputs)[0], 0, start.shape[-1]], start.dtype)
    inputs = tf.transpose(inputs, [1, 0, 2])  # --> [length, batch, d_in]
    length = shape(inputs)[0]
    xs = tf.TensorArray(inputs.dtype, length, element_shape=inputs.shape[1:]).unstack(inputs)
    states = tf.TensorArray(start.dtype, length, element_shape=start.shape)

    def body(count: Tensor, state: Tensor, states: tf.TensorArray) -> tuple:
        state = step(state, xs.read(count))
        return count + 1, state, states.write(count, state)

    *_, states = tf.while_loop(
        lambda count, *_: count < length,
        body,
        (tf.constant(0), start, states),
        parallel_iterations=1,
        maximum_iterations=length,
    )
    return tf.transpose(states.stack(), [1, 0, 2])  # --> [batch, length, width]


def recurrent_scan(
    read: Callable[[Tensor], Tensor],
    step: Callable[[Tensor, Tensor, Tensor], Tensor],
    start: Tensor,
    inputs: Tensor,
    kernel: Tensor,
    all_read: Callable[[Tensor], Tensor],
) -> Tensor:
    """`plain.recurrent_scan`, where the kernel's gradient is one product over all positions, not one per position.

    The gradient of rows @ kernel equals the gradient of the input to which it is added, so `with_kernel` computes the
    kernel's gradient from the gradient of the inputs. The loop gets the kernel as integers with the same bits, because
    it would accumulate a gradient for every float tensor that it reads, even if the gradient is zero.
    """
    all_rows: list[Tensor] = []  # filled after the loop, before any gradient is computed

    @tf.custom_gradient
    def with_kernel(inputs: Tensor, kernel: Tensor) -> tuple[Tensor, Callable]:
        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
            rows, d_rows = (tf.reshape(x, [-1, x.shape[-1]]) for x in (*all_rows, upstream))
            return upstream, tf.matmul(rows, d_rows, transpose_a=True)

        return tf.identity(inputs), gradient

    kernel = tf.cast(tf.convert_to_tensor(kernel), inputs.dtype)
    bits = tf.bitcast(kernel, {2: tf.int16, 4: tf.int32, 8: tf.int64}[kernel.dtype.size])

    @tf.custom_gradient
    def times_kernel(rows: Tensor) -> tuple[Tensor, Callable]:
        def gradient(upstream: Tensor) -> Tensor:
            return tf.matmul(upstream, tf.bitcast(bits, kernel.dtype), transpose_b=True)

        return tf.matmul(rows, tf.bitcast(bits, kernel.dtype)), gradient

    def full_step(state: Tensor, x: Tensor) -> Tensor:
        rows = read(state)
        return step(state, rows, x + times_kernel(rows))

    states = scan(full_step, start, with_kernel(inputs, kernel))
    all_rows.append(tf.stop_gradient(tf.cast(all_read(states), inputs.dtype)))
    return states


def lstm(inputs: Tensor, recurrent_kernels: Sequence[Tensor], mask: Tensor, *, reverse: bool = False) -> Tensor:
    """`plain.lstm` with a hand-written gradient, in which a kernel needs one product over all positions."""
    if inputs.shape[1] == 0:  # an empty `TensorArray` has no shape
        return tf.zeros([shape(inputs)[0], 0, recurrent_kernels[0].shape[0]], inputs.dtype)
    is_token = tf.cast(tf.transpose(mask), tf.float32)[..., tf.newaxis]  # --> [length, batch, 1]

    @tf.custom_gradient
    def run(x: Tensor, *factors: Tensor) -> tuple[Tensor, Callable]:
        gates, hiddens, cells = _lstm_forward(x, factors, is_token, reverse)

        def gradient(d_hiddens: Tensor) -> tuple[Tensor, ...]:
            previous_hiddens, previous_cells = _previous_values(hiddens, reverse), _previous_values(cells, reverse)
            d_gates = _lstm_backward((gates, previous_cells, cells, is_token), factors, d_hiddens, reverse)
            rows, d_rows = (tf.reshape(values, [-1, values.shape[-1]]) for values in (previous_hiddens, d_gates))
            return d_gates, *_factor_gradients(rows, factors, d_rows)

        return hiddens, gradient

    factors = [tf.cast(tf.convert_to_tensor(kernel), inputs.dtype) for kernel in recurrent_kernels]
    return tf.transpose(run(tf.transpose(inputs, [1, 0, 2]), *factors), [1, 0, 2])


def _previous_values(values: Tensor, reverse: bool) -> Tensor:
    """The values at the position processed before each one, zeros for the first: [length, batch, width]."""
    zeros = tf.zeros_like(values[:1])
    return tf.concat([values[1:], zeros] if reverse else [zeros, values[:-1]], 0)


def _factor_gradients(rows: Tensor, factors: Sequence[Tensor], upstream: Tensor) -> list[Tensor]:
    """Gradients of the factors in rows @ factors[0] @ factors[1] ..., from the gradient of the product."""
    left_factors, gradients = [rows], []
    for factor in factors[:-1]:
        left_factors.append(tf.matmul(left_factors[-1], factor))
    for left_factor, factor in zip(reversed(left_factors), reversed(factors), strict=True):
        gradients.append(tf.matmul(left_factor, upstream, transpose_a=True))
        upstream = tf.matmul(upstream, factor, transpose_b=True)
    return gradients[::-1]


def _lstm_forward(
    x: Tensor, factors: Sequence[Tensor], is_token: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Activated gates [length, batch, 4 * units], hidden states and cells [length, batch, units] at each position.

    Gates and cells are float32; hidden states have the dtype of `x`.
    """
    length, is_padding = tf.shape(x)[0], tf.cast(1 - is_token, x.dtype)

    def step(count: Tensor, hidden: Tensor, cell: Tensor, arrays: tuple) -> tuple:
        at, recurrent = length - 1 - count if reverse else count, hidden
        for factor in factors:
            recurrent = tf.matmul(recurrent, factor)
        input_gate, forget_gate, candidate, output_gate = tf.split(tf.cast(x[at] + recurrent, tf.float32), 4, axis=-1)
        input_gate, forget_gate, output_gate = map(tf.sigmoid, (input_gate, forget_gate, output_gate))
        candidate = tf.tanh(candidate)
        next_cell = forget_gate * cell + input_gate * candidate
        hidden = tf.cast(is_token[at] * output_gate * tf.tanh(next_cell), x.dtype) + is_padding[at] * hidden
        cell = is_token[at] * next_cell + (1 - is_token[at]) * cell
        values = tf.concat([input_gate, forget_gate, candidate, output_gate], -1), hidden, cell
        return count + 1, hidden, cell, tuple(array.write(at, v) for array, v in zip(arrays, values, strict=True))

    units = factors[0].shape[0]
    hidden, cell = (tf.zeros([shape(x)[1], units], dtype) for dtype in (x.dtype, tf.float32))
    kinds = ((tf.float32, 4 * units), (x.dtype, units), (tf.float32, units))
    arrays = tuple(tf.TensorArray(dtype, length, element_shape=[None, width]) for dtype, width in kinds)
    *_, arrays = tf.while_loop(
        lambda count, *_: count < length, step, (tf.constant(0), hidden, cell, arrays), parallel_iterations=1
    )
    return tuple(array.stack() for array in arrays)


def _lstm_backward(
    forward: tuple[Tensor, ...],
    factors: Sequence[Tensor],
    d_hiddens: Tensor,
    reverse: bool,
) -> Tensor:
    """The gradient of the input's share of the gates, [length, batch, 4 * units].

    `forward` holds the activated gates, the cells before and after each position, and the mask of tokens.
    """
    gates, previous_cells, cells, is_token = forward
    length = tf.shape(gates)[0]

    def step(count: Tensor, d_hidden: Tensor, d_cell: Tensor, array: Any) -> tuple:
        at = count if reverse else length - 1 - count
        input_gate, forget_gate, candidate, output_gate = tf.split(gates[at], 4, axis=-1)
        d_hidden += tf.cast(d_hiddens[at], tf.float32)
        activation = tf.tanh(cells[at])
        d_new = is_token[at] * d_hidden
        d_new_cell = is_token[at] * d_cell + d_new * output_gate * (1 - activation * activation)
        d_gates = tf.concat(
            [
                d_new_cell * candidate * input_gate * (1 - input_gate),
                d_new_cell * previous_cells[at] * forget_gate * (1 - forget_gate),
                d_new_cell * input_gate * (1 - candidate * candidate),
                d_new * activation * output_gate * (1 - output_gate),
            ],
            -1,
        )  # --> [batch, 4 * units]
        d_gates = d_recurrent = tf.cast(d_gates, d_hiddens.dtype)
        for factor in reversed(factors):
            d_recurrent = tf.matmul(d_recurrent, factor, transpose_b=True)
        d_hidden += tf.cast(d_recurrent, tf.float32) - d_new
        d_cell += d_new_cell * forget_gate - is_token[at] * d_cell
        return count + 1, d_hidden, d_cell, array.write(at, d_gates)

    array = tf.TensorArray(d_hiddens.dtype, length, element_shape=[None, factors[-1].shape[1]])
    zeros = tf.zeros_like(cells[0])
    start = (tf.constant(0), zeros, zeros, array)
    *_, array = tf.while_loop(lambda count, *_: count < length, step, start, parallel_iterations=1)
    return array.stack()
