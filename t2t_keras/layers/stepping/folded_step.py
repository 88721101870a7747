"""A faster step of a decoder with normalisation before its sub-layers: gains, offsets and means are in the kernels.

In a pre-norm decoder, everything reads the residual stream through a layer normalisation. So the stream's mean over
d_model counts for nothing, and the stream is kept without one: all that is added to it is. A normalisation is then a
division by the root mean square, and its gain and offset belong to the projection that follows. Both steps compute the
same function of the weights; they differ in rounding. The final normalisation stays as it is.
"""

from collections.abc import Callable, Sequence
from typing import Any

from keras import ops

from t2t_keras import kernels
from t2t_keras.layers.collectors import made_ready
from t2t_keras.layers.decoder import Decoder, DecoderLayer
from t2t_keras.layers.feed_forward import FeedForward
from t2t_keras.layers.normalization import LayerNormalization
from t2t_keras.layers.residual import Residual
from t2t_keras.layers.stepping.attention_step import KeysAndValues
from t2t_keras.layers.stepping.decoder_step import DecoderCache, DecoderLayerStep, DecoderStep
from t2t_keras.layers.stepping.projections import Projection, Projections
from t2t_keras.tensor import Tensor


class FoldedProjections(Projections):
    """Those of a sub-layer behind a normalisation, whose gain and offset they take; its outputs have the mean 0."""

    def __init__(self, norm: LayerNormalization) -> None:
        super().__init__("float32")
        self._norm = norm

    def made_of_inputs(self, name: str, make: Callable[[], Projection]) -> Projection:
        def folded() -> Projection:
            kernel, bias = make()
            scale, offset = (ops.convert_to_tensor(weight) for weight in (self._norm.scale, self._norm.offset))
            added = ops.matmul(offset[None], kernel)[0]  # --> [d_out]
            return Projection(scale[:, None] * kernel, added if bias is None else added + bias)

        return made_ready(f"{name}.folded", folded)

    def of_inputs(self, kernel: Any, bias: Any) -> Projection:
        return self.made_of_inputs(kernel.path, lambda: Projection(kernel, bias))

    def of_outputs(self, kernel: Any, bias: Any) -> Projection:
        def centred() -> Projection:
            return Projection(without_mean(kernel), None if bias is None else without_mean(bias))

        return made_ready(f"{kernel.path}.centred", centred)


def without_mean(x: Tensor) -> Tensor:
    """x - mean(x) over the last axis."""
    return x - ops.mean(x, axis=-1, keepdims=True)


def connected(inputs: Tensor, sublayers: Sequence[Callable[[Tensor], Tensor]], epsilon: float) -> Tensor:
    """Sub-layers with `FoldedProjections` in turn, each in "Add & Norm": float [rows, d_model] --> the same."""
    x = inputs
    for sublayer in sublayers:
        mean_square = ops.mean(ops.square(x), axis=-1, keepdims=True)  # --> [rows, 1]
        x = kernels.add(x, sublayer(x * ops.rsqrt(mean_square + epsilon)))
    return x


class FoldedLayerStep(DecoderLayerStep):
    """The step of a pre-norm `DecoderLayer` with a `FeedForward`; inputs and outputs have the mean 0 over d_model."""

    def projections(self, layer: DecoderLayer, dtype: str) -> Sequence[Projections]:
        residuals = layer.self_attention_residual, layer.cross_attention_residual, layer.feed_forward_residual
        return [FoldedProjections(residual.norm) for residual in residuals]

    def connect(self, inputs: Tensor, sublayers: Sequence[Callable[[Tensor], Tensor]]) -> Tensor:
        return connected(inputs, sublayers, self._layer.settings.layer_norm_epsilon)


class FoldedDecoderStep(DecoderStep):
    """`DecoderStep` of a decoder that `can_fold`, in float32."""

    layer_class = FoldedLayerStep

    def __init__(self, decoder: Decoder, beam_size: int) -> None:
        super().__init__(decoder, "float32", beam_size)

    def __call__(
        self, inputs: Tensor, cache: DecoderCache, past_bias: Tensor | None
    ) -> tuple[Tensor, tuple[KeysAndValues, ...], Tensor]:
        return super().__call__(without_mean(inputs), cache, past_bias)


def can_fold(decoder: Decoder) -> bool:
    """Whether a decoder is what `FoldedDecoderStep` knows: pre-norm layers of float32, with a `FeedForward` each."""

    def is_known(layer: DecoderLayer) -> bool:
        residuals = layer.self_attention_residual, layer.cross_attention_residual, layer.feed_forward_residual
        return (type(layer), type(layer.feed_forward)) == (DecoderLayer, FeedForward) and all(map(is_folded, residuals))

    return decoder.compute_dtype == "float32" and decoder.final_norm is not None and all(map(is_known, decoder.layers))


def is_folded(residual: Residual) -> bool:
    """Whether an "Add & Norm" is what `connected` computes with `FoldedProjections`."""
    return (type(residual), type(residual.norm), residual.norm_position) == (Residual, LayerNormalization, "pre")
