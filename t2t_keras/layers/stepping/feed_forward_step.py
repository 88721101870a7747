"""The feed-forward network, or the experts in its place, in one step of a search."""

from keras import ops

from t2t_keras import kernels
from t2t_keras.layers.experts import ExpertWeights, MixtureOfExperts, mixture
from t2t_keras.layers.feed_forward import FeedForward
from t2t_keras.tensor import Tensor


class FeedForwardStep:
    """A built `FeedForward` without dropout, its kernels cast once per search; bfloat16 also multiplies in bfloat16."""

    def __init__(self, layer: FeedForward, dtype: str) -> None:
        self._layer = layer
        self._inner_kernel = ops.cast(layer.inner_kernel, dtype)  # [d_model, d_ff]
        self._outer_kernel = ops.cast(layer.outer_kernel, dtype)  # [d_ff, d_model]

    def __call__(self, inputs: Tensor) -> Tensor:
        """float [batch * beam, d_model] --> the same."""
        inner = kernels.linear(inputs, self._inner_kernel, self._layer.inner_bias)  # --> [rows, d_ff]
        return kernels.linear(
            self._layer.activate(inner), self._outer_kernel, self._layer.outer_bias
        )  # --> [rows, d_model]


class MixtureStep:
    """A built `MixtureOfExperts` without noise and dropout; all kernels but the gates' are cast once per search."""

    def __init__(self, layer: MixtureOfExperts, dtype: str) -> None:
        self._layer = layer
        inner, outer = ops.cast(layer.inner_kernels, dtype), ops.cast(layer.outer_kernels, dtype)
        self._weights = ExpertWeights(inner, layer.inner_biases, outer, layer.outer_biases)

    def __call__(self, inputs: Tensor) -> Tensor:
        """float [batch * beam, d_model] --> the same; a hypothesis costs `experts_per_token` experts."""
        return mixture(inputs, self._layer.gating(inputs), self._weights, kernels.grouped_linear)


def feed_forward_step(layer: FeedForward | MixtureOfExperts, dtype: str) -> FeedForwardStep | MixtureStep:
    """The step of whichever of the two a layer has."""
    return MixtureStep(layer, dtype) if isinstance(layer, MixtureOfExperts) else FeedForwardStep(layer, dtype)
