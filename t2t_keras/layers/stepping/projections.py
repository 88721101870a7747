"""The kernels of a step, made ready once per search, or once and for all where somebody keeps them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_keras.layers.collectors import made_ready


class Projection(NamedTuple):
    """A linear map: kernel [d_in, d_out], and bias [d_out] or None; weights of a layer, or made of them."""

    kernel: Any
    bias: Any


def joined(*parts: Projection) -> Projection:
    """The projection whose outputs are those of the parts next to each other; all have a bias, or none has."""
    kernels, biases = zip(*parts, strict=True)
    return Projection(ops.concatenate(kernels, axis=1), None if biases[0] is None else ops.concatenate(biases, axis=0))


class Projections:
    """Makes the projections of a sub-layer ready: their kernels are cast to `dtype`."""

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype

    def made_of_inputs(self, name: str, make: Callable[[], Projection]) -> Projection:
        """A projection of the sub-layer's inputs that is made of weights; the name is its own."""
        return made_ready(f"{name}.{self._dtype}", lambda: self._cast(make()))

    def of_inputs(self, kernel: Any, bias: Any) -> Projection:
        """A projection of the sub-layer's inputs, by its weights."""
        return self._cast(Projection(kernel, bias))

    def of_outputs(self, kernel: Any, bias: Any) -> Projection:
        """The projection to the sub-layer's outputs, by its weights."""
        return self._cast(Projection(kernel, bias))

    def _cast(self, projection: Projection) -> Projection:
        if keras.backend.standardize_dtype(projection.kernel.dtype) == self._dtype:
            return projection
        return projection._replace(kernel=ops.cast(projection.kernel, self._dtype))
