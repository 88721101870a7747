"""Packs a model's weights into a few matrices, so that summing, updating and saving take few operations."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from t2t_keras.tensor import Tensor

# Numbers in a row. Each weight starts a new row, at a memory boundary that lets TensorFlow take it out of a matrix
# without a copy; a TPU stores rows of this width without padding.
_WIDTH = 128


class Layout:
    """The places of the weights: one after the other, each padded with zeros to whole rows.

    `parts` is the number of matrices, of about equal size, or fewer if weights are too large for that. Several cores
    work on as many matrices at once. `shapes` are those of the matrices, [rows, width] each.
    """

    def __init__(self, shapes: Iterable[Sequence[int]], parts: int = 1) -> None:
        weights = [tuple(shape) for shape in shapes]
        rows = np.array([math.ceil(math.prod(shape) / _WIDTH) for shape in weights])
        # A weight goes where its middle row falls: no matrix exceeds its share by more than half a weight at each end.
        places = (rows.cumsum() - rows / 2) * parts // rows.sum()
        members = [np.flatnonzero(places == part) for part in np.unique(places)]
        self._weights = [[weights[i] for i in part] for part in members]
        self._rows = [[int(rows[i]) for i in part] for part in members]
        self.shapes = [(sum(rows_of_part), _WIDTH) for rows_of_part in self._rows]

    def join(self, weights: Sequence[Tensor]) -> list[Tensor]:
        """Packs weights, or their gradients, all of one dtype, into matrices [rows, width]."""
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
        """Unpacks matrices [rows, width] into weights, which share their memory."""
        weights = []
        for matrix, shapes, rows_of_part in zip(matrices, self._weights, self._rows, strict=True):
            for block, shape, rows in zip(tf.split(matrix, rows_of_part), shapes, rows_of_part, strict=True):
                if (size := math.prod(shape)) < rows * _WIDTH:
                    block = tf.reshape(block, [-1])[:size]
                weights.append(tf.reshape(block, shape))
        return weights

    def join_arrays(self, weights: Sequence[np.ndarray]) -> list[np.ndarray]:
        """`join` for float32 arrays; raises ValueError if an array does not have its weight's shape."""
        matrices = [np.zeros(shape, np.float32) for shape in self.shapes]
        for place, weight in zip(self.split_arrays(matrices), weights, strict=True):
            if place.shape != np.shape(weight):
                raise ValueError(f"a weight of shape {place.shape} cannot be {np.shape(weight)}")
            place[...] = weight
        return matrices

    def split_arrays(self, matrices: Sequence[np.ndarray]) -> list[np.ndarray]:
        """`split` for arrays; returns views of them."""
        weights = []
        for matrix, shapes, rows_of_part in zip(matrices, self._weights, self._rows, strict=True):
            end = 0
            for shape, rows in zip(shapes, rows_of_part, strict=True):
                begin, end = end, end + rows
                weights.append(matrix[begin:end].reshape(-1)[: math.prod(shape)].reshape(shape))
        return weights
