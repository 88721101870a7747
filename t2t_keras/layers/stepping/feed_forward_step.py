"""The feed-forward network in one step of a search."""

from typing import Any

from keras import ops

from t2t_keras.layers import kernels
from t2t_keras.layers.feed_forward import FeedForward

Tensor = Any


class FeedForwardStep:
    """A built `FeedForward` without dropout, its kernels cast once per search; bfloat16 also multiplies in bfloat16."""

    def __init__(self, layer: FeedForward, dtype: str) -> None:
        self._layer = layer
        self._inner_kernel = ops.cast(layer.inner_kernel, dtype)  # [d_model, d_ff]
        self._outer_kernel = ops.cast(layer.outer_kernel, dtype)  # [d_ff, d_model]

    def __call__(self, inputs: Tensor) -> Tensor:
        """float [batch * beam, d_model] --> the same."""
        inner = ops.relu(kernels.linear(inputs, self._inner_kernel, self._layer.inner_bias))  # --> [rows, d_ff]
        return kernels.linear(inner, self._outer_kernel, self._layer.outer_bias)  # --> [rows, d_model]
