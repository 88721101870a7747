"""The encoder of a search, faster for a few sentences: folded like the decoder's step, attending without oneDNN."""

from typing import Any

from keras import ops

from t2t_keras import kernels
from t2t_keras.layers.attention.multi_head import MultiHeadAttention
from t2t_keras.layers.attention.scores import mask_bias
from t2t_keras.layers.encoder import Encoder, EncoderLayer
from t2t_keras.layers.feed_forward import FeedForward
from t2t_keras.layers.stepping.attention_step import joined_heads, transposed
from t2t_keras.layers.stepping.decoder_step import FeedForwardStep
from t2t_keras.layers.stepping.folded_step import FoldedProjections, connected, is_folded, without_mean
from t2t_keras.tensor import Tensor


class _FoldedLayer:
    """An `EncoderLayer` without dropout, on rows of the mean 0 over d_model."""

    def __init__(self, layer: EncoderLayer) -> None:
        self._attention = layer.self_attention
        self._epsilon = layer.settings.layer_norm_epsilon
        of_attention, of_feed_forward = (
            FoldedProjections(residual.norm)
            for residual in (layer.self_attention_residual, layer.feed_forward_residual)
        )
        self._joined = joined_heads(layer.self_attention, of_attention)
        self._output = of_attention.of_outputs(layer.self_attention.output_kernel, layer.self_attention.output_bias)
        self._feed_forward = FeedForwardStep(layer.feed_forward, of_feed_forward)

    def __call__(self, rows: Tensor, bias: Tensor, shape: tuple[Any, Any]) -> Tensor:
        """float [batch * length, d_model] --> the same; `bias` is a `mask_bias`, `shape` batch and length."""
        return connected(rows, (lambda x: self._attended(x, bias, shape), self._feed_forward), self._epsilon)

    def _attended(self, rows: Tensor, bias: Tensor, shape: tuple[Any, Any]) -> Tensor:
        (batch, length), heads, width = shape, self._attention.num_heads, self._attention.d_key
        projected = kernels.linear(rows, *self._joined)  # --> [batch * length, 3 * heads * d_head]
        parts = ops.split(transposed(projected, batch, length, 3 * heads, width), 3, axis=1)
        attended, _ = kernels.attend_from_few(*parts, bias=bias)  # --> [batch, heads, length, d_head]
        concatenated = transposed(attended, batch, heads, length, width)  # --> [batch, length, heads, d_head]
        return kernels.linear(ops.reshape(concatenated, (-1, heads * width)), *self._output)


class FoldedEncoder:
    """An `Encoder` that `can_fold_encoder`, in float32 and without dropout."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._layers = [_FoldedLayer(layer) for layer in encoder.layers]

    def __call__(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """float [batch, length, d_model] and its `padding_mask` --> the memory, of the same shape."""
        batch, length, d_model = kernels.shape(inputs)
        rows, bias = without_mean(ops.reshape(inputs, (-1, d_model))), mask_bias(mask, "float32")
        for layer in self._layers:
            rows = layer(rows, bias, (batch, length))
        return self._encoder.normalised(ops.reshape(rows, (batch, length, d_model)))


def can_fold_encoder(encoder: Encoder) -> bool:
    """Whether an encoder is what `FoldedEncoder` knows: pre-norm layers of float32 with the paper's attention to all
    positions, keys as wide as values, and a `FeedForward` each.
    """

    def is_known(layer: EncoderLayer) -> bool:
        attention = layer.self_attention
        kinds = tuple(map(type, (layer, attention, layer.feed_forward)))
        plain = attention.score_vector is None and attention.window is None and attention.d_key == attention.d_value
        folded = is_folded(layer.self_attention_residual) and is_folded(layer.feed_forward_residual)
        return plain and folded and kinds == (EncoderLayer, MultiHeadAttention, FeedForward)

    return encoder.compute_dtype == "float32" and encoder.final_norm is not None and all(map(is_known, encoder.layers))
