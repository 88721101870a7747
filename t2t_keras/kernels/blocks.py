"""Division of sequences into equal blocks; lengths are ints if known before the graph runs, else int32 scalars."""

from typing import Any

from keras import ops

from t2t_keras import kernels
from t2t_keras.tensor import Tensor

Length = Any


def ceil_div(length: Length, size: Length) -> Length:
    """The number of blocks of a size that cover a length."""
    return (length + size - 1) // size


def smaller(one: Length, other: Length) -> Length:
    """The smaller of two lengths."""
    return min(one, other) if isinstance(one, int) and isinstance(other, int) else ops.minimum(one, other)


def larger(one: Length, other: Length) -> Length:
    """The larger of two lengths."""
    return max(one, other) if isinstance(one, int) and isinstance(other, int) else ops.maximum(one, other)


def split_blocks(x: Tensor, count: Length, size: Length) -> Tensor:
    """Divides a sequence into blocks, padded with zeros: [..., length, width] --> [..., count, size, width].

    The length is at most count * size.
    """
    *leading, length, width = kernels.shape(x)
    padding = [(0, 0)] * len(leading) + [(0, count * size - length), (0, 0)]
    return ops.reshape(ops.pad(x, padding), (*leading, count, size, width))  # --> [..., count, size, width]


def merge_blocks(blocks: Tensor, length: Length) -> Tensor:
    """Concatenates blocks and removes the padding: [..., count, size, width] --> [..., length, width]."""
    *leading, count, size, width = kernels.shape(blocks)
    return ops.reshape(blocks, (*leading, count * size, width))[..., :length, :]  # --> [..., length, width]
