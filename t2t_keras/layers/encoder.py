"""The encoder (left half of Figure 1)."""

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
class EncoderLayer(keras.layers.Layer):
    """Self-attention, then a feed-forward network or experts, each inside an "Add & Norm" (section 3.1).

    Args:
        settings: a `LayerSettings`, or its fields by name.

    Call arguments:
        inputs: float [batch, source_len, d_model].
        self_attention_mask: bool, broadcastable to [batch, heads, source_len, source_len]; normally `padding_mask`, and
            with a window always a mask of keys alone.
        seed: int32 [2], for all dropout inside; None draws seeds.
        token_rows: int32 [tokens], from `token_rows`: rows that the feed-forward network computes; None means all.

    Returns:
        float [batch, source_len, d_model].
    """

    def __init__(self, settings: LayerSettings | Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings = settings = LayerSettings.of(settings)
        dtype = self.dtype_policy
        self.self_attention = MultiHeadAttention(
            **settings.attention, window=settings.window(causal=False), name="self_attention", dtype=dtype
        )
        self.self_attention_residual = Residual(**settings.residual, name="self_attention_residual", dtype=dtype)
        self.feed_forward = feed_forward_layer(settings, dtype)
        self.feed_forward_residual = Residual(**settings.residual, name="feed_forward_residual", dtype=dtype)

    def build(self, input_shape: tuple) -> None:
        self.self_attention.build(input_shape, input_shape)
        self.self_attention_residual.build(input_shape)
        self.feed_forward.build(input_shape)
        self.feed_forward_residual.build(input_shape)

    def call(
        self,
        inputs: Tensor,
        self_attention_mask: Tensor | None = None,
        seed: Tensor | None = None,
        token_rows: Tensor | None = None,
    ) -> Tensor:
        return self.with_balance_loss(inputs, self_attention_mask, seed=seed, token_rows=token_rows)[0]

    def with_balance_loss(
        self,
        inputs: Tensor,
        self_attention_mask: Tensor | None = None,
        *,
        token_mask: Tensor | None = None,
        seed: Tensor | None = None,
        token_rows: Tensor | None = None,
        **mode: bool,
    ) -> tuple[Tensor, Tensor]:
        """The call's result, and the balance loss of each sentence, float32 [batch], or 0 without experts.

        `token_mask` is that of `MixtureOfExperts`; `mode` may hold `training`.
        """
        losses: list[Tensor] = []

        def feed_forward(x: Tensor) -> Tensor:
            rows: dict[str, Any] = {"token_mask": token_mask, "token_rows": token_rows}
            outputs, loss = self.feed_forward.with_balance_loss(x, seed=fold_in(seed, 3), **rows, **mode)
            losses.append(loss)
            return outputs

        outputs = self.connected(
            inputs,
            lambda x: self.self_attention(x, x, self_attention_mask, seed=fold_in(seed, 1), **mode),
            feed_forward,
            seed=seed,
            **mode,
        )
        return outputs, losses[0]

    def connected(
        self,
        inputs: Tensor,
        self_attention: Sublayer,
        feed_forward: Sublayer,
        *,
        seed: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """Chains the two sub-layers as in Figure 1; each is a function from float [batch, source_len, d_model] to the
        same. `seed`, int32 [2], is for the dropout of the residual connections.
        """
        # Not handed on where it is None, which Keras would take for False.
        mode = {} if training is None else {"training": training}
        x = self.self_attention_residual(inputs, sublayer=self_attention, seed=fold_in(seed, 0), **mode)
        return self.feed_forward_residual(x, sublayer=feed_forward, seed=fold_in(seed, 2), **mode)

    def outputs_and_attention(self, inputs: Tensor, self_attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The call's result without dropout, and its attention, [batch, heads, source_len, source_len]."""
        seen: list[Tensor] = []

        def self_attention(x: Tensor) -> Tensor:
            outputs, weights = self.self_attention.attend(x, x, self_attention_mask)
            seen.append(ops.swapaxes(weights, 0, 1))  # --> [batch, heads, source_len, source_len]
            return outputs

        def feed_forward(x: Tensor) -> Tensor:
            return self.feed_forward.with_balance_loss(x, training=False)[0]

        return self.connected(inputs, self_attention, feed_forward, training=False), seen[0]

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "settings": dataclasses.asdict(self.settings)}


@keras.saving.register_keras_serializable(package="t2t_keras")
class Encoder(keras.layers.Layer):
    """A stack of N identical layers (section 3.1), followed by one more normalisation if pre-norm.

    Args:
        num_layers: N.
        layer: the settings of every `EncoderLayer`, or their fields by name.

    Call arguments:
        inputs: float [batch, source_len, d_model], embedded source tokens with positions.
        self_attention_mask, seed, token_rows: as in `EncoderLayer`.

    Returns:
        The memory, float [batch, source_len, d_model].
    """

    def __init__(self, num_layers: int, layer: LayerSettings | Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if num_layers < 1:
            raise ValueError(f"`num_layers` must be at least 1, got {num_layers}")
        self.num_layers = num_layers
        self.settings = settings = LayerSettings.of(layer)
        dtype = self.dtype_policy
        self.layers = [EncoderLayer(settings, name=f"layer_{i}", dtype=dtype) for i in range(num_layers)]
        self.final_norm = None
        if settings.norm_position == "pre":
            self.final_norm = LayerNormalization(settings.layer_norm_epsilon, name="final_norm", dtype=dtype)

    def build(self, input_shape: tuple) -> None:
        for layer in self.layers:
            layer.build(input_shape)
        if self.final_norm is not None:
            self.final_norm.build(input_shape)

    def call(
        self,
        inputs: Tensor,
        self_attention_mask: Tensor | None = None,
        seed: Tensor | None = None,
        token_rows: Tensor | None = None,
    ) -> Tensor:
        return self.with_balance_loss(inputs, self_attention_mask, seed=seed, token_rows=token_rows)[0]

    def with_balance_loss(
        self, inputs: Tensor, self_attention_mask: Tensor | None = None, *, seed: Tensor | None = None, **others: Any
    ) -> tuple[Tensor, Tensor]:
        """The call's result, and the sum of the layers' losses; see `EncoderLayer.with_balance_loss`."""
        x, losses = inputs, []
        for index, layer in enumerate(self.layers):
            x, loss = layer.with_balance_loss(x, self_attention_mask, seed=fold_in(seed, index), **others)
            losses.append(loss)
        return self._normalised(x), sum(losses)

    def outputs_and_attention(self, inputs: Tensor, self_attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The call's result without dropout, and the attention, [batch, layers, heads, source_len, source_len]."""
        x, seen = inputs, []
        for layer in self.layers:
            x, weights = layer.outputs_and_attention(x, self_attention_mask)
            seen.append(weights)
        return self._normalised(x), ops.stack(seen, axis=1)

    def _normalised(self, x: Tensor) -> Tensor:
        """Applies the final normalisation, if there is one."""
        return x if self.final_norm is None else self.final_norm(x)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_layers": self.num_layers, "layer": dataclasses.asdict(self.settings)}
