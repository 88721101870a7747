"""The decoder (right half of Figure 1)."""

from collections.abc import Callable, Mapping
from typing import Any

import keras

from t2t_keras.layers.attention.multi_head import MultiHeadAttention
from t2t_keras.layers.dropout import fold_in
from t2t_keras.layers.experts import feed_forward_layer
from t2t_keras.layers.layer import Layer, takes
from t2t_keras.layers.residual import Residual
from t2t_keras.layers.settings import LayerSettings
from t2t_keras.layers.stack import Stack
from t2t_keras.tensor import Tensor

Sublayers = tuple[Callable[[Tensor], Tensor], ...]


@keras.saving.register_keras_serializable(package="t2t_keras")
class DecoderLayer(Layer):
    """Masked self-attention, attention to the memory, feed-forward network or experts, each in an "Add & Norm" (3.1).

    Args:
        settings: a `LayerSettings`, or its fields by name.

    Call arguments:
        inputs: float [batch, target_len, d_model].
        memory: float [batch, source_len, d_model], the encoder's output.
        self_attention_mask: bool, broadcastable to [batch, heads, target_len, target_len]; normally `causal_mask`, and
            None with a window, which is causal by itself.
        cross_attention_mask: bool, broadcastable to [batch, heads, target_len, source_len]; normally `padding_mask`.
        seed: int32 [2], for all dropout inside; None draws seeds.
        token_rows: int32 [tokens], from `token_rows`: rows that the feed-forward network computes; None means all.
        sublayers: functions to connect instead of the layer's own three boxes, from float [..., d_model] to the same:
            those of one step of a search. Memory and masks are then theirs, and not read here.

    Returns:
        float [batch, target_len, d_model].
    """

    def __init__(self, settings: LayerSettings | Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings = settings = LayerSettings.of(settings)
        dtype = self.dtype_policy
        self.self_attention = MultiHeadAttention(
            **settings.attention, window=settings.window(causal=True), name="self_attention", dtype=dtype
        )
        self.self_attention_residual = Residual(**settings.residual, name="self_attention_residual", dtype=dtype)
        self.cross_attention = MultiHeadAttention(**settings.attention, name="cross_attention", dtype=dtype)
        self.cross_attention_residual = Residual(**settings.residual, name="cross_attention_residual", dtype=dtype)
        self.feed_forward = feed_forward_layer(settings, dtype)
        self.feed_forward_residual = Residual(**settings.residual, name="feed_forward_residual", dtype=dtype)

    def build(self, inputs_shape: tuple, memory_shape: tuple) -> None:
        self.input_spec = takes(2, inputs_shape, more=True)  # in the steps of a search any number of axes
        self.self_attention.build(inputs_shape, inputs_shape)
        self.self_attention_residual.build(inputs_shape)
        self.cross_attention.build(inputs_shape, memory_shape)
        self.cross_attention_residual.build(inputs_shape)
        self.feed_forward.build(inputs_shape)
        self.feed_forward_residual.build(inputs_shape)

    def call(
        self,
        inputs: Tensor,
        memory: Tensor,
        self_attention_mask: Tensor | None = None,
        cross_attention_mask: Tensor | None = None,
        seed: Tensor | None = None,
        token_rows: Tensor | None = None,
        sublayers: Sublayers | None = None,
    ) -> Tensor:
        self_attention, cross_attention, feed_forward = sublayers or (
            lambda x: self.self_attention(x, x, self_attention_mask, seed=fold_in(seed, 1)),
            lambda x: self.cross_attention(x, memory, cross_attention_mask, seed=fold_in(seed, 3)),
            lambda x: self.feed_forward(x, seed=fold_in(seed, 5), token_rows=token_rows),
        )
        x = self.self_attention_residual(inputs, sublayer=self_attention, seed=fold_in(seed, 0))
        x = self.cross_attention_residual(x, sublayer=cross_attention, seed=fold_in(seed, 2))
        return self.feed_forward_residual(x, sublayer=feed_forward, seed=fold_in(seed, 4))


@keras.saving.register_keras_serializable(package="t2t_keras")
class Decoder(Stack):
    """A `Stack` of `DecoderLayer`.

    Call arguments:
        inputs: float [batch, target_len, d_model], embedded target tokens, shifted right, with positions.
        memory, self_attention_mask, cross_attention_mask, seed, token_rows: as in `DecoderLayer`.

    Returns:
        float [batch, target_len, d_model].

    Example:
        >>> decoder = Decoder(num_layers=2, layer={"num_heads": 2, "d_key": 4, "d_ff": 16})
        >>> decoder(np.ones([2, 3, 8], "float32"), np.ones([2, 5, 8], "float32")).shape
        TensorShape([2, 3, 8])
    """

    layer_class = DecoderLayer

    def build(self, inputs_shape: tuple, memory_shape: tuple) -> None:
        self.build_all(inputs_shape, memory_shape)

    def call(
        self,
        inputs: Tensor,
        memory: Tensor,
        self_attention_mask: Tensor | None = None,
        cross_attention_mask: Tensor | None = None,
        seed: Tensor | None = None,
        token_rows: Tensor | None = None,
    ) -> Tensor:
        x = inputs
        for index, layer in enumerate(self.layers):
            masks = self_attention_mask, cross_attention_mask
            x = layer(x, memory, *masks, seed=fold_in(seed, index), token_rows=token_rows)
        return self.normalised(x)
