"""The encoder: the left half of Figure 1."""

from typing import Any, Literal

import keras

from t2t_keras.layers.attention import MultiHeadAttention
from t2t_keras.layers.dropout import fold_in
from t2t_keras.layers.feed_forward import FeedForward
from t2t_keras.layers.normalization import LayerNormalization
from t2t_keras.layers.residual import Residual

Tensor = Any


@keras.saving.register_keras_serializable(package="t2t_keras")
class EncoderLayer(keras.layers.Layer):
    """Self-attention, then a feed-forward network, each inside a residual connection (section 3.1).

    Args:
        num_heads: h.
        d_key: width of a head's queries and keys.
        d_ff: inner width of the feed-forward network.
        d_value: width of a head's values; None means d_key.
        dropout_rate: on each sub-layer's output.
        attention_dropout_rate: on the attention weights.
        relu_dropout_rate: inside the feed-forward network.
        norm_position: "post" (the paper) or "pre" (T2T).
        use_attention_bias: whether the attention projections have biases.
        layer_norm_epsilon: of the layer normalisations.

    Call arguments:
        inputs: float [batch, source_len, d_model].
        self_attention_mask: bool, broadcastable to [batch, heads, source_len, source_len], True = may attend.
        seed: int32 [2], of all dropout within; None draws seeds.
        token_rows: int32 [tokens], of `token_rows`; the feed-forward networks leave all other positions out. None
            computes all of them.

    Returns:
        float [batch, source_len, d_model].
    """

    def __init__(
        self,
        num_heads: int,
        d_key: int,
        d_ff: int,
        d_value: int | None = None,
        dropout_rate: float = 0.0,
        attention_dropout_rate: float = 0.0,
        relu_dropout_rate: float = 0.0,
        norm_position: Literal["post", "pre"] = "post",
        use_attention_bias: bool = True,
        layer_norm_epsilon: float = 1e-6,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._settings = {
            "num_heads": num_heads,
            "d_key": d_key,
            "d_ff": d_ff,
            "d_value": d_value,
            "dropout_rate": dropout_rate,
            "attention_dropout_rate": attention_dropout_rate,
            "relu_dropout_rate": relu_dropout_rate,
            "norm_position": norm_position,
            "use_attention_bias": use_attention_bias,
            "layer_norm_epsilon": layer_norm_epsilon,
        }
        residual = (norm_position, dropout_rate, layer_norm_epsilon)
        self.self_attention = MultiHeadAttention(
            num_heads,
            d_key,
            d_value,
            attention_dropout_rate,
            use_attention_bias,
            name="self_attention",
            dtype=self.dtype_policy,
        )
        self.self_attention_residual = Residual(*residual, name="self_attention_residual", dtype=self.dtype_policy)
        self.feed_forward = FeedForward(d_ff, relu_dropout_rate, name="feed_forward", dtype=self.dtype_policy)
        self.feed_forward_residual = Residual(*residual, name="feed_forward_residual", dtype=self.dtype_policy)

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
        def self_attention(x: Tensor) -> Tensor:
            return self.self_attention(x, x, self_attention_mask, seed=fold_in(seed, 1))

        def feed_forward(x: Tensor) -> Tensor:
            return self.feed_forward(x, seed=fold_in(seed, 3), token_rows=token_rows)

        x = self.self_attention_residual(inputs, sublayer=self_attention, seed=fold_in(seed, 0))
        return self.feed_forward_residual(x, sublayer=feed_forward, seed=fold_in(seed, 2))

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self._settings}


@keras.saving.register_keras_serializable(package="t2t_keras")
class Encoder(keras.layers.Layer):
    """A stack of N identical layers (section 3.1), with one more normalisation at its end when pre-norm.

    Args:
        num_layers: N.
        layer: the arguments of every `EncoderLayer`, by name.

    Call arguments:
        inputs: float [batch, source_len, d_model], embedded source tokens with positions.
        self_attention_mask: bool, broadcastable to [batch, heads, source_len, source_len], True = may attend.
        seed: int32 [2], of all dropout within; None draws seeds.
        token_rows: int32 [tokens], of `token_rows`; the feed-forward networks leave all other positions out. None
            computes all of them.

    Returns:
        The memory, float [batch, source_len, d_model].
    """

    def __init__(self, num_layers: int, layer: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if num_layers < 1:
            raise ValueError(f"`num_layers` must be at least 1, got {num_layers}")
        self.num_layers = num_layers
        self.layer_settings = dict(layer)
        self.layers = [EncoderLayer(**layer, name=f"layer_{i}", dtype=self.dtype_policy) for i in range(num_layers)]
        pre_norm = self.layer_settings.get("norm_position", "post") == "pre"
        epsilon = self.layer_settings.get("layer_norm_epsilon", 1e-6)
        self.final_norm = LayerNormalization(epsilon, name="final_norm", dtype=self.dtype_policy) if pre_norm else None

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
        x = inputs
        for index, layer in enumerate(self.layers):
            x = layer(x, self_attention_mask, seed=fold_in(seed, index), token_rows=token_rows)
        return x if self.final_norm is None else self.final_norm(x)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_layers": self.num_layers, "layer": self.layer_settings}
