"""The operations in Keras alone: the reference for every faster version, and what other backends run."""

from typing import Any

import keras
from keras import ops

Tensor = Any


def linear(inputs: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
    """inputs @ kernel + bias over the last axis.

    Args:
        inputs: float [..., d_in].
        kernel: float [d_in, d_out], cast to the inputs' dtype; but where it is bfloat16, the inputs are for the
            product.
        bias: float [d_out], cast to the inputs' dtype, or None.

    Returns:
        [..., d_out], of the inputs' dtype.
    """
    dtype = product_dtype(inputs, kernel)
    outputs = ops.matmul(ops.cast(inputs, dtype), ops.cast(kernel, dtype))  # --> [..., d_out]
    outputs = ops.cast(outputs, inputs.dtype)
    return outputs if bias is None else outputs + ops.cast(bias, inputs.dtype)


def product_dtype(inputs: Tensor, kernel: Tensor) -> str:
    """What the product in `linear` is computed in: bfloat16 where the kernel is, else as the inputs are."""
    narrow = keras.backend.standardize_dtype(kernel.dtype) == "bfloat16"
    return "bfloat16" if narrow else keras.backend.standardize_dtype(inputs.dtype)


def layer_normalization(inputs: Tensor, scale: Tensor, offset: Tensor, epsilon: float) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset over the last axis, computed in float32.

    Args:
        inputs: float [..., d_model].
        scale: float32 [d_model].
        offset: float32 [d_model].
        epsilon: added to the variance.

    Returns:
        [..., d_model], of the inputs' dtype.
    """
    x = ops.cast(inputs, "float32")
    centred = x - ops.mean(x, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
    normalised = centred * ops.rsqrt(variance + epsilon) * scale + offset
    return ops.cast(normalised, inputs.dtype)


def embedding_lookup(table: Tensor, token_ids: Tensor) -> Tensor:
    """Rows of a table.

    Args:
        table: float [vocab, d_model].
        token_ids: int [...].

    Returns:
        float [..., d_model].
    """
    return ops.take(table, token_ids, axis=0)  # --> [..., d_model]


def softmax(inputs: Tensor) -> Tensor:
    """exp(x) / sum(exp(x)) over the last axis.

    Args:
        inputs: float [..., width].

    Returns:
        [..., width], of the inputs' dtype.
    """
    return ops.softmax(inputs, axis=-1)


def take_rows(inputs: Tensor, rows: Tensor) -> Tensor:
    """Some of the positions of a batch.

    Args:
        inputs: float [batch, length, width].
        rows: int32 [rows], different indices into batch * length.

    Returns:
        float [rows, width].
    """
    return ops.take(ops.reshape(inputs, (-1, inputs.shape[-1])), rows, axis=0)  # --> [rows, width]


def put_rows(values: Tensor, rows: Tensor, like: Tensor) -> Tensor:
    """The inverse of `take_rows`, with zeros in all other positions.

    Args:
        values: float [rows, width].
        rows: int32 [rows], different indices into batch * length.
        like: [batch, length, width], of the result's shape.

    Returns:
        float [batch, length, width].
    """
    batch, length, width = ops.shape(like)
    flat = ops.scatter(rows[:, None], values, (batch * length, width))  # --> [batch * length, width]
    return ops.reshape(flat, (batch, length, width))  # --> [batch, length, width]


def add(inputs: Tensor, outputs: Tensor) -> Tensor:
    """The sum of two tensors of one shape."""
    return inputs + outputs


def scores(queries: Tensor, keys: Tensor) -> Tensor:
    """Q K^T over the last two axes.

    Args:
        queries: float [..., query_len, d_key].
        keys: float [..., key_len, d_key].

    Returns:
        float [..., query_len, key_len].
    """
    return ops.matmul(queries, ops.swapaxes(keys, -2, -1))  # --> [..., query_len, key_len]


def shape(x: Tensor) -> list[Tensor | int]:
    """The dimensions of a tensor: ints where they are known before the graph runs, else int32 scalars."""
    return list(ops.shape(x))


def reshape_like(values: Tensor, like: Tensor) -> Tensor:
    """The values in the shape of another tensor of as many elements."""
    return ops.reshape(values, ops.shape(like))


def dropout(inputs: Tensor, rate: float, seed: Tensor) -> Tensor:
    """Zeroes elements with probability `rate` and scales the rest by 1 / (1 - rate).

    The bits are a hash of (element index, seed) in 32-bit integer arithmetic
    that every backend has, so the mask is a function of the seed alone.

    Args:
        inputs: float, any shape.
        rate: in [0, 1).
        seed: int32 [2].

    Returns:
        Of the inputs' shape and dtype.
    """
    shape = ops.shape(inputs)
    count = 1
    for size in shape:
        count = count * size
    bits = _mixed(ops.arange(count, dtype="int32") + seed[0])
    bits = _mixed(ops.bitwise_xor(bits, seed[1]))
    uniform = ops.cast(ops.bitwise_and(bits, 0xFFFFFF), "float32")  # 24 bits are exact in float32
    keep = ops.reshape(ops.cast(uniform >= rate * 2.0**24, inputs.dtype), shape)
    return inputs * keep * ops.cast(1.0 / (1.0 - rate), inputs.dtype)


def _mixed(x: Tensor) -> Tensor:
    """A bijection of int32 in which every output bit depends on every input bit (multiply and xor-shift)."""
    for multiplier in (0x7FEB352D, 0x68E31DA5):
        # An arithmetic shift copies the sign bit, so the bits it brings in are masked off.
        x = ops.bitwise_xor(x, ops.bitwise_and(ops.right_shift(x, 15), 0x1FFFF))
        x = x * multiplier
    return ops.bitwise_xor(x, ops.bitwise_and(ops.right_shift(x, 16), 0xFFFF))


__all__ = [
    "add",
    "dropout",
    "embedding_lookup",
    "layer_normalization",
    "linear",
    "put_rows",
    "reshape_like",
    "scores",
    "shape",
    "softmax",
    "take_rows",
]
