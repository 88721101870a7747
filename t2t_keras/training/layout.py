"""Packs a model's weights into a few matrices, so that reducing, updating and saving them takes few operations."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from t2t_keras.tensor import Tensor

# Numbers per row. Each weight starts a new row, whose memory alignment lets TensorFlow slice it without a copy. A TPU
# stores rows of this width without padding.
_WIDTH = 128


class MatrixLayout:
    """The arrangement of weights in matrices: one after the other, each padded with zeros to whole rows.

    Args:
        shapes: shapes of the weights.
        parts: number of matrices of about equal size, which as many cores can process in parallel. There are fewer if
            single weights are too large.

    Attributes:
        shapes: shapes of the matrices, (rows, width) each.
    """

    def __init__(self, shapes: Iterable[Sequence[int]], parts: int = 1) -> None:
        weights = [tuple(shape) for shape in shapes]
        rows = np.array([math.ceil(math.prod(shape) / _WIDTH) for shape in weights])
        # The middle row of a weight decides its matrix: no matrix exceeds its share by more than half a weight at
        # each end.
        places = (rows.cumsum() - rows / 2) * parts // rows.sum()
        members = [np.flatnonzero(places == part) for part in np.unique(places)]
        self._weights = [[weights[i] for i in part] for part in members]
        self._rows = [[int(rows[i]) for i in part] for part in members]
        self.shapes = [(sum(rows_of_part), _WIDTH) for rows_of_part in self._rows]

    def join(self, weights: Sequence[Tensor]) -> list[Tensor]:
        """Packs weights, or gradients of one dtype, into matrices [rows, width]."""
        blocks: list[list[Tensor]] = []
        rest = iter(weights)
        for shapes, rows_of_part in zip(self._weights, self._rows, strict=True):
            blocks.append([])
            for shape, rows in zip(shapes, rows_of_part, strict=True):
                weight = next(rest)
                if missing := rows * _WIDTH - math.prod(shape):
                    weight = tf.pad(tf.reshape(weight, [-1]), [[0, missing]])
                blocks[-1].append(tf.reshape(weight, [rows, _WIDTH]))
        return [tf.concat(blocks_of_part, 0) for blocks_of_part in blocks]  # --> [rows, width] each

    def split(self, matrices: Sequence[Tensor]) -> list[Tensor]:
        """Unpacks matrices [rows, width] into weights, which share the memory of the matrices."""
        weights = []
        for matrix, shapes, rows_of_part in zip(matrices, self._weights, self._rows, strict=True):
            for block, shape, rows in zip(tf.split(matrix, rows_of_part), shapes, rows_of_part, strict=True):
                if (size := math.prod(shape)) < rows * _WIDTH:
                    block = tf.reshape(block, [-1])[:size]
                weights.append(tf.reshape(block, shape))
        return weights

    def join_arrays(self, weights: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Like `join`, for NumPy arrays; returns float32 and raises a ValueError if an array has a wrong shape."""
        matrices = [np.zeros(shape, np.float32) for shape in self.shapes]
        for place, weight in zip(self.split_arrays(matrices), weights, strict=True):
            if place.shape != np.shape(weight):
                raise ValueError(f"a weight of shape {place.shape} cannot be {np.shape(weight)}")
            place[...] = weight
        return matrices

    def split_arrays(self, matrices: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Like `split`, for NumPy arrays; returns views."""
        weights = []
        for matrix, shapes, rows_of_part in zip(matrices, self._weights, self._rows, strict=True):
            end = 0
            for shape, rows in zip(shapes, rows_of_part, strict=True):
                begin, end = end, end + rows
                weights.append(matrix[begin:end].reshape(-1)[: math.prod(shape)].reshape(shape))
        return weights
