"""The operations in plain Keras: the reference for faster versions, and the implementation on other backends."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from t2t_keras.kernels.contexts import ProductDtype, compute_once
from t2t_keras.tensor import Tensor

__all__ = [
    "add",
    "convolution",
    "dropout",
    "embedding_lookup",
    "grouped_linear",
    "layer_normalization",
    "linear",
    "lstm",
    "matmul",
    "merge_heads",
    "normal",
    "put_rows",
    "recurrent_scan",
    "reshape_like",
    "scan",
    "scores",
    "shape",
    "softmax",
    "split_heads",
    "take_rows",
]


def linear(inputs: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
    """inputs @ kernel + bias: float [..., d_in], [d_in, d_out], [d_out] or None --> [..., d_out] in the inputs' dtype.

    Kernel and bias are cast to the inputs' dtype. The product is computed in a different dtype only if there is a
    `ProductDtype` or if the kernel is bfloat16.
    """
    dtype = product_dtype(inputs, kernel)
    outputs = ops.matmul(ops.cast(inputs, dtype), cast_kernel(kernel, dtype))  # --> [..., d_out]
    outputs = ops.cast(outputs, inputs.dtype)
    return outputs if bias is None else outputs + ops.cast(bias, inputs.dtype)


def product_dtype(inputs: Tensor, kernel: Tensor) -> str:
    """The dtype of the product in `linear`; raises as `check_float`."""
    check_float(inputs)
    if (setting := ProductDtype.innermost()) is not None:
        return setting.dtype
    narrow = keras.backend.standardize_dtype(kernel.dtype) == "bfloat16"
    return "bfloat16" if narrow else keras.backend.standardize_dtype(inputs.dtype)


def cast_kernel(kernel: Any, dtype: str) -> Tensor:
    """Casts a kernel to a dtype, once per `WeightCache` if it is a weight."""
    name = getattr(kernel, "path", None)
    if name is None or dtype == "float32":
        return ops.cast(kernel, dtype)
    return compute_once(f"{name}.{dtype}", lambda: ops.cast(kernel, dtype))


def check_float(inputs: Tensor) -> None:
    """Raises a ValueError if inputs are not float: weights would be rounded to their dtype."""
    if "float" not in (dtype := keras.backend.standardize_dtype(inputs.dtype)):
        raise ValueError(f"inputs must be float, got {dtype}; embed token ids first")


def grouped_linear(inputs: Tensor, kernels: Tensor, biases: Tensor, counts: Tensor) -> Tensor:
    """`linear` with a separate kernel and bias for each group of rows.

    Each block of rows belongs to one group, and the last block of a group is padded with zeros. The number of blocks
    that suffices for any `counts` is known in advance, so all shapes are static, as XLA needs.

    Args:
        inputs: float [rows, d_in], where the rows of a group are adjacent.
        kernels: float [groups, d_in, d_out].
        biases: float [groups, d_out].
        counts: int32 [groups], number of rows in each group; they sum to `rows`.

    Returns:
        float [rows, d_out], in the inputs' dtype.
    """
    groups, d_in, d_out = kernels.shape
    rows, dtype = ops.shape(inputs)[0], product_dtype(inputs, kernels)
    size = rows // (2 * groups) + 1  # half an average group: less padding, but more blocks and copies of kernels
    blocks = rows // size + groups
    ends, block_ends = ops.cumsum(counts), ops.cumsum((counts + size - 1) // size)  # --> [groups] each
    group_of_row = ops.searchsorted(ends, ops.arange(rows, dtype="int32"), side="right")
    group_of_block = ops.searchsorted(block_ends, ops.arange(blocks, dtype="int32"), side="right")
    group_of_block = ops.minimum(group_of_block, groups - 1)  # unused blocks hold zeros
    shifts = (block_ends - (counts + size - 1) // size) * size - (ends - counts)  # from a row to its place in a block
    places = ops.take(shifts, group_of_row) + ops.arange(rows, dtype="int32")  # --> [rows]
    block_rows = ops.scatter(places[:, None], ops.cast(inputs, dtype), (blocks * size, d_in))
    block_rows = ops.reshape(block_rows, (blocks, size, d_in))  # --> [blocks, size, d_in]
    block_kernels = ops.cast(ops.take(with_dense_gradient(kernels), group_of_block, axis=0), dtype)
    outputs = ops.matmul(block_rows, block_kernels)  # --> [blocks, size, d_out]
    outputs = ops.take(ops.reshape(outputs, (blocks * size, d_out)), places, axis=0)  # --> [rows, d_out]
    row_biases = ops.take(with_dense_gradient(biases), group_of_row, axis=0)  # --> [rows, d_out]
    return ops.cast(outputs, inputs.dtype) + ops.cast(row_biases, inputs.dtype)


def layer_normalization(inputs: Tensor, scale: Tensor, offset: Tensor, epsilon: float) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset over the last axis, computed in float32.

    Inputs are float [..., d_model]; scale and offset are float32 [d_model]. The result has the inputs' dtype.
    """
    check_float(inputs)
    x = ops.cast(inputs, "float32")
    centred = x - ops.mean(x, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
    normalised = centred * ops.rsqrt(variance + epsilon) * scale + offset
    return ops.cast(normalised, inputs.dtype)


def with_dense_gradient(weight: Tensor) -> Tensor:
    """Wraps a weight so that gathering its rows has a dense gradient in TensorFlow, as on other backends.

    A sparse gradient has only the gathered rows, and Keras's optimizers would not update the moments of the others. The
    gradient of a reshape is dense, even if the shape does not change.
    """
    return ops.reshape(weight, weight.shape)


def embedding_lookup(table: Tensor, token_ids: Tensor) -> Tensor:
    """Gathers rows of a table: float [vocab, d_model], int [...] --> float [..., d_model]."""
    return ops.take(table, token_ids, axis=0)  # --> [..., d_model]


def softmax(inputs: Tensor) -> Tensor:
    """exp(x) / sum(exp(x)) over the last axis, in the inputs' dtype."""
    return ops.softmax(inputs, axis=-1)


def take_rows(inputs: Tensor, rows: Tensor) -> Tensor:
    """Gathers distinct rows of a flattened batch: [batch, length, width], int32 [rows] --> [rows, width]."""
    return ops.take(ops.reshape(inputs, (-1, inputs.shape[-1])), rows, axis=0)  # --> [rows, width]


def put_rows(values: Tensor, rows: Tensor, like: Tensor) -> Tensor:
    """The inverse of `take_rows`: float [rows, width] --> float [batch, length, width], zero at all other positions."""
    batch, length, width = ops.shape(like)
    flat = ops.scatter(rows[:, None], values, (batch * length, width))  # --> [batch * length, width]
    return ops.reshape(flat, (batch, length, width))  # --> [batch, length, width]


def add(inputs: Tensor, outputs: Tensor) -> Tensor:
    """The sum of two tensors of the same shape."""
    return inputs + outputs


def scores(queries: Tensor, keys: Tensor) -> Tensor:
    """Q K^T over the last two axes: [..., query_len, d_key], [..., key_len, d_key] --> [..., query_len, key_len]."""
    return ops.matmul(queries, ops.swapaxes(keys, -2, -1))  # --> [..., query_len, key_len]


def matmul(x: Tensor, y: Tensor) -> Tensor:
    """The product over the last two axes: [..., n, k], [..., k, m] --> [..., n, m]."""
    return ops.matmul(x, y)


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """[batch, length, heads * d_head] --> [batch, heads, length, d_head]."""
    batch, length, width = shape(x)
    heads = ops.reshape(x, (batch, length, num_heads, width // num_heads))  # --> [batch, length, heads, d_head]
    return ops.swapaxes(heads, 1, 2)  # --> [batch, heads, length, d_head]


def merge_heads(heads: Tensor) -> Tensor:
    """[batch, heads, length, d_head] --> [batch, length, heads * d_head]."""
    batch, num_heads, length, d_head = shape(heads)
    heads = ops.swapaxes(heads, 1, 2)  # --> [batch, length, heads, d_head]
    return ops.reshape(heads, (batch, length, num_heads * d_head))  # --> [batch, length, heads * d_head]


def shape(x: Tensor) -> list[Tensor | int]:
    """The dimensions of a tensor: ints if known before the graph runs, else int32 scalars."""
    return list(ops.shape(x))


def reshape_like(values: Tensor, like: Tensor) -> Tensor:
    """Reshapes values to the shape of `like`, which has the same number of elements."""
    return ops.reshape(values, ops.shape(like))


def dropout(inputs: Tensor, rate: float, seed: Tensor) -> Tensor:
    """Zeroes elements with probability `rate`, in [0, 1), and scales the rest by 1 / (1 - rate); `seed` is int32 [2].

    The random bits are a hash of element index and seed in 32-bit integers, so on every backend they depend only on
    the seed.
    """
    uniform = ops.cast(_random_bits(ops.shape(inputs), seed), "float32")
    keep = ops.cast(uniform >= rate * 2.0**24, inputs.dtype)
    return inputs * keep * ops.cast(1.0 / (1.0 - rate), inputs.dtype)


def normal(dimensions: Sequence[Tensor | int], seed: Tensor) -> Tensor:
    """Standard normal numbers in float32, determined by the seed, int32 [2] (Box and Muller, 1958)."""
    bits = ops.cast(_random_bits((2, *dimensions), seed), "float32")
    radius = ops.sqrt(-2.0 * ops.log((bits[0] + 1.0) / 2.0**24))  # the logarithm of a number in (0, 1]
    return radius * ops.cos(bits[1] * (2.0 * math.pi / 2.0**24))


def _random_bits(shape: Sequence[Tensor | int], seed: Tensor) -> Tensor:
    """24 random bits per element, which float32 represents exactly: int32 of the given shape."""
    count = 1
    for size in shape:
        count = count * size
    bits = _mix(ops.arange(count, dtype="int32") + seed[0])
    bits = _mix(ops.bitwise_xor(bits, seed[1]))
    return ops.reshape(ops.bitwise_and(bits, 0xFFFFFF), shape)


def _mix(x: Tensor) -> Tensor:
    """A bijection of int32 in which every output bit depends on every input bit (multiply and xor-shift)."""
    for multiplier in (0x7FEB352D, 0x68E31DA5):
        # An arithmetic shift copies the sign bit, so the bits that it shifts in are masked out.
        x = ops.bitwise_xor(x, ops.bitwise_and(ops.right_shift(x, 15), 0x1FFFF))
        x = x * multiplier
    return ops.bitwise_xor(x, ops.bitwise_and(ops.right_shift(x, 16), 0xFFFF))


def convolution(inputs: Tensor, kernel: Tensor, bias: Tensor | None, dilation_rate: int, before: int) -> Tensor:
    """A convolution over time; see `Convolution`.

    Args:
        inputs: float [batch, length, d_in].
        kernel: float [kernel_size, d_in, d_out], cast to the inputs' dtype.
        bias: float [d_out], cast to the inputs' dtype, or None.
        dilation_rate: distance between adjacent positions that an output reads.
        before: distance of the first of these before the output's position, at most (kernel_size - 1) * dilation_rate.

    Returns:
        float [batch, length, d_out].
    """
    kernel_size, d_in, d_out = kernel.shape
    length = ops.shape(inputs)[1]
    padded = ops.pad(inputs, ((0, 0), (before, (kernel_size - 1) * dilation_rate - before), (0, 0)))
    starts = [i * dilation_rate for i in range(kernel_size)]
    # --> [batch, length, kernel_size * d_in]
    windows = ops.concatenate([padded[:, start : start + length] for start in starts], axis=-1)
    matrix = ops.reshape(ops.cast(kernel, inputs.dtype), (kernel_size * d_in, d_out))  # --> [kernel_size * d_in, d_out]
    return linear(windows, matrix, bias)  # --> [batch, length, d_out]


def scan(step: Callable[[Tensor, Tensor], Tensor], start: Tensor, inputs: Tensor) -> Tensor:
    """Computes the state at each position from the previous state and the position's input.

    Args:
        step: (state, input) --> state.
        start: [batch, width], the state before the first position.
        inputs: [batch, length, d_in].

    Returns:
        [batch, length, width].
    """

    # On some backends, `ops.scan` requires that the output be the state.
    def step_with_output(state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        state = step(state, x)
        return state, state

    _, states = ops.scan(step_with_output, start, ops.swapaxes(inputs, 0, 1))  # --> [length, batch, width]
    return ops.swapaxes(states, 0, 1)  # --> [batch, length, width]


def recurrent_scan(
    read: Callable[[Tensor], Tensor],
    step: Callable[[Tensor, Tensor, Tensor], Tensor],
    start: Tensor,
    inputs: Tensor,
    kernel: Tensor,
    all_read: Callable[[Tensor], Tensor],
) -> Tensor:
    """`scan` with a recurrent product: rows read from the previous state, times a kernel, are added to each input.

    Args:
        read: state --> rows, [batch, d_read].
        step: (state, rows, input + rows @ kernel) --> state.
        start: [batch, width], the state before the first position.
        inputs: [batch, length, d_in].
        kernel: [d_read, d_in], cast to the inputs' dtype.
        all_read: all states, [batch, length, width] --> the rows read at each position, [batch, length, d_read].

    Returns:
        [batch, length, width].
    """

    def full_step(state: Tensor, x: Tensor) -> Tensor:
        rows = read(state)
        return step(state, rows, x + linear(rows, kernel, None))

    return scan(full_step, start, inputs)


def lstm(inputs: Tensor, recurrent_kernels: Sequence[Tensor], mask: Tensor, *, reverse: bool = False) -> Tensor:
    """A long short-term memory over a sequence, with an initial state of zeros; see `LSTM`.

    Args:
        inputs: float [batch, length, 4 * units], the input's share of the gates: input, forget, candidate, output.
        recurrent_kernels: float [units, 4 * units], or two factors of such a matrix, [units, width] and
            [width, 4 * units].
        mask: bool [batch, length], True = token; the state does not change at other positions.
        reverse: whether to process the sequence from its end.

    Returns:
        The hidden state at each position, float [batch, length, units].
    """
    factors = [ops.cast(kernel, inputs.dtype) for kernel in recurrent_kernels]
    units = factors[0].shape[0]

    def step(state: Tensor, x: Tensor) -> Tensor:
        recurrent, cell = ops.cast(state[:, :units], inputs.dtype), state[:, units:]
        for factor in factors:
            recurrent = ops.matmul(recurrent, factor)
        hidden, cell = lstm_step(x[:, :-1] + recurrent, cell)
        return ops.where(x[:, -1:] > 0, ops.concatenate([ops.cast(hidden, "float32"), cell], axis=-1), state)

    masked = ops.concatenate([inputs, ops.cast(mask, inputs.dtype)[..., None]], axis=-1)
    start = ops.zeros((ops.shape(inputs)[0], 2 * units), "float32")
    states = scan(step, start, ops.flip(masked, axis=1) if reverse else masked)  # --> [batch, length, 2 * units]
    states = ops.flip(states, axis=1) if reverse else states
    return ops.cast(states[..., :units], inputs.dtype)  # --> [batch, length, units]


def lstm_step(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Computes the next hidden state, [..., units], and the next cell, float32 [..., units].

    `gates` are the gates before activation, [..., 4 * units]. Gates and cells are always computed in float32:
    multiplied by a forget gate of 0.9975, most cells in bfloat16 would not change.
    """
    input_gate, forget_gate, candidate, output_gate = ops.split(ops.cast(gates, "float32"), 4, axis=-1)
    cell = ops.sigmoid(forget_gate) * cell + ops.sigmoid(input_gate) * ops.tanh(candidate)
    return ops.cast(ops.sigmoid(output_gate) * ops.tanh(cell), gates.dtype), cell
