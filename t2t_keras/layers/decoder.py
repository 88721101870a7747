"""The decoder (right half of Figure 1)."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras
from keras import ops

from t2t_keras.layers.attention.multi_head import MultiHeadAttention
from t2t_keras.layers.dropout import fold_in
from t2t_keras.layers.experts import feed_forward_layer
from t2t_keras.layers.normalization import LayerNormalization
from t2t_keras.layers.residual import Residual
from t2t_keras.layers.settings import LayerSettings

Tensor = Any
Sublayer = Callable[[Tensor], Tensor]


@keras.saving.register_keras_serializable(package="t2t_keras")
class DecoderLayer(keras.layers.Layer):
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
    ) -> Tensor:
        masks = self_attention_mask, cross_attention_mask
        return self.with_balance_loss(inputs, memory, *masks, seed=seed, token_rows=token_rows)[0]

    def with_balance_loss(
        self,
        inputs: Tensor,
        memory: Tensor,
        self_attention_mask: Tensor | None = None,
        cross_attention_mask: Tensor | None = None,
        *,
        token_mask: Tensor | None = None,
        seed: Tensor | None = None,
        token_rows: Tensor | None = None,
        **mode: bool,
    ) -> tuple[Tensor, Tensor]:
        """The call's result and the experts' balance loss; see `EncoderLayer.with_balance_loss`."""
        losses: list[Tensor] = []

        def feed_forward(x: Tensor) -> Tensor:
            rows: dict[str, Any] = {"token_mask": token_mask, "token_rows": token_rows}
            outputs, loss = self.feed_forward.with_balance_loss(x, seed=fold_in(seed, 5), **rows, **mode)
            losses.append(loss)
            return outputs

        outputs = self.connected(
            inputs,
            lambda x: self.self_attention(x, x, self_attention_mask, seed=fold_in(seed, 1), **mode),
            lambda x: self.cross_attention(x, memory, cross_attention_mask, seed=fold_in(seed, 3), **mode),
            feed_forward,
            seed=seed,
            **mode,
        )
        return outputs, losses[0]

    def connected(
        self,
        inputs: Tensor,
        self_attention: Sublayer,
        cross_attention: Sublayer,
        feed_forward: Sublayer,
        *,
        seed: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """Chains the three sub-layers as in Figure 1; each is a function from float [..., d_model] to the same, over
        whole sequences or in one step of a search. `seed`, int32 [2], is for the dropout of the residual connections.
        """
        # Not handed on where it is None, which Keras would take for False.
        mode = {} if training is None else {"training": training}
        x = self.self_attention_residual(inputs, sublayer=self_attention, seed=fold_in(seed, 0), **mode)
        x = self.cross_attention_residual(x, sublayer=cross_attention, seed=fold_in(seed, 2), **mode)
        return self.feed_forward_residual(x, sublayer=feed_forward, seed=fold_in(seed, 4), **mode)

    def outputs_and_attention(
        self,
        inputs: Tensor,
        memory: Tensor,
        self_attention_mask: Tensor | None = None,
        cross_attention_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The call's result without dropout, its self-attention, [batch, heads, target_len, target_len], and its
        attention to the memory, [batch, heads, target_len, source_len].
        """
        seen: list[Tensor] = []

        def attended(attention: MultiHeadAttention, x: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
            outputs, weights = attention.attend(x, memory, mask)
            seen.append(ops.swapaxes(weights, 0, 1))  # --> [batch, heads, target_len, key_len]
            return outputs

        outputs = self.connected(
            inputs,
            lambda x: attended(self.self_attention, x, x, self_attention_mask),
            lambda x: attended(self.cross_attention, x, memory, cross_attention_mask),
            lambda x: self.feed_forward.with_balance_loss(x, training=False)[0],
            training=False,
        )
        self_weights, cross_weights = seen
        return outputs, self_weights, cross_weights

    def compute_output_shape(self, inputs_shape: tuple, memory_shape: tuple | None = None) -> tuple:
        return inputs_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "settings": dataclasses.asdict(self.settings)}


@keras.saving.register_keras_serializable(package="t2t_keras")
class Decoder(keras.layers.Layer):
    """A stack of N identical layers (section 3.1), followed by one more normalisation if pre-norm.

    Args:
        num_layers: N.
        layer: the settings of every `DecoderLayer`, or their fields by name.

    Call arguments:
        inputs: float [batch, target_len, d_model], embedded target tokens, shifted right, with positions.
        memory, self_attention_mask, cross_attention_mask, seed, token_rows: as in `DecoderLayer`.

    Returns:
        float [batch, target_len, d_model].
    """

    def __init__(self, num_layers: int, layer: LayerSettings | Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if num_layers < 1:
            raise ValueError(f"`num_layers` must be at least 1, got {num_layers}")
        self.num_layers = num_layers
        self.settings = settings = LayerSettings.of(layer)
        dtype = self.dtype_policy
        self.layers = [DecoderLayer(settings, name=f"layer_{i}", dtype=dtype) for i in range(num_layers)]
        self.final_norm = None
        if settings.norm_position == "pre":
            self.final_norm = LayerNormalization(settings.layer_norm_epsilon, name="final_norm", dtype=dtype)

    def build(self, inputs_shape: tuple, memory_shape: tuple) -> None:
        for layer in self.layers:
            layer.build(inputs_shape, memory_shape)
        if self.final_norm is not None:
            self.final_norm.build(inputs_shape)

    def call(
        self,
        inputs: Tensor,
        memory: Tensor,
        self_attention_mask: Tensor | None = None,
        cross_attention_mask: Tensor | None = None,
        seed: Tensor | None = None,
        token_rows: Tensor | None = None,
    ) -> Tensor:
        masks = self_attention_mask, cross_attention_mask
        return self.with_balance_loss(inputs, memory, *masks, seed=seed, token_rows=token_rows)[0]

    def with_balance_loss(
        self,
        inputs: Tensor,
        memory: Tensor,
        self_attention_mask: Tensor | None = None,
        cross_attention_mask: Tensor | None = None,
        *,
        seed: Tensor | None = None,
        **others: Any,
    ) -> tuple[Tensor, Tensor]:
        """The call's result, and the sum of the layers' losses; see `EncoderLayer.with_balance_loss`."""
        x, losses, masks = inputs, [], (self_attention_mask, cross_attention_mask)
        for index, layer in enumerate(self.layers):
            x, loss = layer.with_balance_loss(x, memory, *masks, seed=fold_in(seed, index), **others)
            losses.append(loss)
        return self.normalised(x), sum(losses)

    def normalised(self, x: Tensor) -> Tensor:
        """Applies the final normalisation, if there is one, to the last layer's output, float [..., d_model]."""
        return x if self.final_norm is None else self.final_norm(x)

    def outputs_and_attention(
        self,
        inputs: Tensor,
        memory: Tensor,
        self_attention_mask: Tensor | None = None,
        cross_attention_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The call's result without dropout, the self-attention, [batch, layers, heads, target_len, target_len], and
        the attention to the memory, [batch, layers, heads, target_len, source_len].
        """
        x, seen = inputs, []
        for layer in self.layers:
            x, *weights = layer.outputs_and_attention(x, memory, self_attention_mask, cross_attention_mask)
            seen.append(weights)
        self_weights, cross_weights = (ops.stack(weights, axis=1) for weights in zip(*seen, strict=True))
        return self.normalised(x), self_weights, cross_weights

    def compute_output_shape(self, inputs_shape: tuple, memory_shape: tuple | None = None) -> tuple:
        return inputs_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_layers": self.num_layers, "layer": dataclasses.asdict(self.settings)}
