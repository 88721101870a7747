"""The decoder: the right half of Figure 1, for whole sequences and one position at a time."""

from typing import Any, Literal

import keras
from keras import ops

from t2t_keras.layers.attention import MultiHeadAttention
from t2t_keras.layers.dropout import fold_in
from t2t_keras.layers.feed_forward import FeedForward
from t2t_keras.layers.normalization import LayerNormalization
from t2t_keras.layers.residual import Residual

Tensor = Any


@keras.saving.register_keras_serializable(package="t2t_keras")
class DecoderLayer(keras.layers.Layer):
    """Masked self-attention, attention to the memory, a feed-forward network (section 3.1).

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
        inputs: float [batch, target_len, d_model].
        memory: float [batch, source_len, d_model], the encoder's output.
        self_attention_mask: bool, broadcastable to [batch, heads, target_len, target_len]; normally `causal_mask`.
        cross_attention_mask: bool, broadcastable to [batch, heads, target_len, source_len].
        seed: int32 [2], of all dropout within; None draws seeds.
        token_rows: int32 [tokens], of the targets' `token_rows`; the feed-forward networks leave all other
            positions out. None computes all of them.

    Returns:
        float [batch, target_len, d_model].
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
        attention = (num_heads, d_key, d_value, attention_dropout_rate, use_attention_bias)
        residual = (norm_position, dropout_rate, layer_norm_epsilon)
        self.self_attention = MultiHeadAttention(*attention, name="self_attention", dtype=self.dtype_policy)
        self.self_attention_residual = Residual(*residual, name="self_attention_residual", dtype=self.dtype_policy)
        self.cross_attention = MultiHeadAttention(*attention, name="cross_attention", dtype=self.dtype_policy)
        self.cross_attention_residual = Residual(*residual, name="cross_attention_residual", dtype=self.dtype_policy)
        self.feed_forward = FeedForward(d_ff, relu_dropout_rate, name="feed_forward", dtype=self.dtype_policy)
        self.feed_forward_residual = Residual(*residual, name="feed_forward_residual", dtype=self.dtype_policy)

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
        def self_attention(x: Tensor) -> Tensor:
            return self.self_attention(x, x, self_attention_mask, seed=fold_in(seed, 1))

        def cross_attention(x: Tensor) -> Tensor:
            return self.cross_attention(x, memory, cross_attention_mask, seed=fold_in(seed, 3))

        def feed_forward(x: Tensor) -> Tensor:
            return self.feed_forward(x, seed=fold_in(seed, 5), token_rows=token_rows)

        x = self.self_attention_residual(inputs, sublayer=self_attention, seed=fold_in(seed, 0))
        x = self.cross_attention_residual(x, sublayer=cross_attention, seed=fold_in(seed, 2))
        return self.feed_forward_residual(x, sublayer=feed_forward, seed=fold_in(seed, 4))

    def cross_attention_weights(
        self,
        inputs: Tensor,
        memory: Tensor,
        self_attention_mask: Tensor | None = None,
        cross_attention_mask: Tensor | None = None,
    ) -> Tensor:
        """How the call attends to the memory, without dropout.

        Computes the self-attention once more, so that the call need not know of it.

        Args:
            inputs: as in the call, as are all others.
            memory: float [batch, source_len, d_model].
            self_attention_mask: see the call.
            cross_attention_mask: see the call.

        Returns:
            float [batch, heads, target_len, source_len].
        """

        def self_attention(x: Tensor) -> Tensor:
            return self.self_attention(x, x, self_attention_mask, training=False)

        x = self.self_attention_residual(inputs, sublayer=self_attention, training=False)
        query = self.cross_attention_residual.sublayer_inputs(x)
        return self.cross_attention.attention_weights(query, memory, cross_attention_mask)

    def step(
        self,
        inputs: Tensor,
        past: dict[str, Tensor],
        memory: dict[str, Tensor],
        self_attention_bias: Tensor | None,
        memory_bias: Tensor | None,
        projections: dict[str, dict[str, Tensor | None]],
        beam_size: int,
        weights: list[Tensor] | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The layer at one position, given the keys and values of the positions before it.

        The beam takes the place of the target length, so neither the memory nor the
        past is ever repeated or reordered.

        Args:
            inputs: float [batch * beam, d_model].
            past: "keys" and "values", float [batch, heads, past_len, d_head]; see `Decoder.start_cache`.
            memory: "keys" and "values", float [batch, heads, source_len, d_head].
            self_attention_bias: a `mask_bias`, broadcastable to [batch, heads, beam, past_len + beam], or None.
            memory_bias: a `mask_bias`, broadcastable to [batch, heads, beam, source_len], or None.
            projections: "self_attention", "cross_attention" and "feed_forward", of their `step_projections`.
            beam_size: hypotheses a sentence.
            weights: where given, gets the attention to the memory, float [batch, heads, beam, source_len].

        Returns:
            float [batch * beam, d_model], and `past` with this position at its end.
        """
        written: dict[str, Tensor] = {}

        def self_attention(x: Tensor) -> Tensor:
            own = projections["self_attention"]
            attended, now = self.self_attention.step(x, past, self_attention_bias, own, beam_size)
            written.update(now)
            return attended

        def cross_attention(x: Tensor) -> Tensor:
            own = projections["cross_attention"]
            if weights is not None:
                weights.append(self.cross_attention.step_weights(x, memory, memory_bias, own, beam_size))
            return self.cross_attention.step_to_memory(x, memory, memory_bias, own, beam_size)

        def feed_forward(x: Tensor) -> Tensor:
            return self.feed_forward.step(x, projections["feed_forward"])

        x = self.self_attention_residual(inputs, sublayer=self_attention, training=False)
        x = self.cross_attention_residual(x, sublayer=cross_attention, training=False)
        return self.feed_forward_residual(x, sublayer=feed_forward, training=False), written

    def compute_output_shape(self, inputs_shape: tuple, memory_shape: tuple | None = None) -> tuple:
        return inputs_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self._settings}


@keras.saving.register_keras_serializable(package="t2t_keras")
class Decoder(keras.layers.Layer):
    """A stack of N identical layers (section 3.1), with one more normalisation at its end when pre-norm.

    Args:
        num_layers: N.
        layer: the arguments of every `DecoderLayer`, by name.

    Call arguments:
        inputs: float [batch, target_len, d_model], embedded target tokens, shifted right, with positions.
        memory: float [batch, source_len, d_model], the encoder's output.
        self_attention_mask: bool, broadcastable to [batch, heads, target_len, target_len]; normally `causal_mask`.
        cross_attention_mask: bool, broadcastable to [batch, heads, target_len, source_len].
        seed: int32 [2], of all dropout within; None draws seeds.
        token_rows: int32 [tokens], of the targets' `token_rows`; the feed-forward networks leave all other
            positions out. None computes all of them.

    Returns:
        float [batch, target_len, d_model].
    """

    def __init__(self, num_layers: int, layer: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if num_layers < 1:
            raise ValueError(f"`num_layers` must be at least 1, got {num_layers}")
        self.num_layers = num_layers
        self.layer_settings = dict(layer)
        self.layers = [DecoderLayer(**layer, name=f"layer_{i}", dtype=self.dtype_policy) for i in range(num_layers)]
        pre_norm = self.layer_settings.get("norm_position", "post") == "pre"
        epsilon = self.layer_settings.get("layer_norm_epsilon", 1e-6)
        self.final_norm = LayerNormalization(epsilon, name="final_norm", dtype=self.dtype_policy) if pre_norm else None

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
        x = inputs
        for index, layer in enumerate(self.layers):
            masks = (self_attention_mask, cross_attention_mask)
            x = layer(x, memory, *masks, seed=fold_in(seed, index), token_rows=token_rows)
        return x if self.final_norm is None else self.final_norm(x)

    def states_and_cross_attention(
        self,
        inputs: Tensor,
        memory: Tensor,
        self_attention_mask: Tensor | None = None,
        cross_attention_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """What the call returns without dropout, and how every layer attended to the memory.

        Args:
            inputs: as in the call, as are all others.
            memory: float [batch, source_len, d_model].
            self_attention_mask: see the call.
            cross_attention_mask: see the call.

        Returns:
            float [batch, target_len, d_model], and float [batch, layers, heads, target_len, source_len].
        """
        masks = (self_attention_mask, cross_attention_mask)
        x, weights = inputs, []
        for layer in self.layers:
            weights.append(layer.cross_attention_weights(x, memory, *masks))
            x = layer(x, memory, *masks, training=False)
        return (x if self.final_norm is None else self.final_norm(x)), ops.stack(weights, axis=1)

    def start_cache(self, memory: Tensor, product_dtype: str) -> dict[str, list[dict[str, Any]]]:
        """What `step` needs besides its inputs.

        Args:
            memory: float [batch, source_len, d_model].
            product_dtype: of the projections' kernels; bfloat16 lets the steps' products be computed in it.

        Returns:
            Three lists with a dict a layer. "self_attention": "keys" and "values", float
            [batch, heads, 0, d_head], which grow by the beam at every position; "memory":
            "keys" and "values", float [batch, heads, source_len, d_head]; "projections": the
            `step_projections` of every sub-layer. The latter two stay as they are.
        """
        batch = ops.shape(memory)[0]
        past, memories = [], []
        for layer in self.layers:
            keys, values = layer.cross_attention.project_memory(memory)
            memories.append({"keys": keys, "values": values})
            attention = layer.self_attention
            past.append(
                {
                    "keys": ops.zeros((batch, attention.num_heads, 0, attention.d_key), keys.dtype),
                    "values": ops.zeros((batch, attention.num_heads, 0, attention.d_value), values.dtype),
                }
            )
        projections = [
            {
                "self_attention": layer.self_attention.step_projections(product_dtype),
                "cross_attention": layer.cross_attention.step_projections(product_dtype),
                "feed_forward": layer.feed_forward.step_projections(product_dtype),
            }
            for layer in self.layers
        ]
        return {"self_attention": past, "memory": memories, "projections": projections}

    def step(
        self,
        inputs: Tensor,
        cache: dict[str, list[dict[str, Tensor | None]]],
        self_attention_bias: Tensor | None,
        memory_bias: Tensor | None,
        beam_size: int,
        weights: list[Tensor] | None = None,
    ) -> tuple[Tensor, list[dict[str, Tensor]]]:
        """The stack at one position.

        Args:
            inputs: float [batch * beam, d_model].
            cache: as `start_cache` made it, with the "self_attention" of the position before.
            self_attention_bias: a `mask_bias`, broadcastable to [batch, heads, beam, past_len + beam], or None.
            memory_bias: a `mask_bias`, broadcastable to [batch, heads, beam, source_len], or None.
            beam_size: hypotheses a sentence.
            weights: where given, gets the last layer's attention to the memory, float
                [batch, heads, beam, source_len].

        Returns:
            float [batch * beam, d_model], and the cache's new "self_attention".
        """
        x, past = inputs, []
        parts = zip(self.layers, cache["self_attention"], cache["memory"], cache["projections"], strict=True)
        for layer, layer_past, layer_memory, projections in parts:
            biases = (self_attention_bias, memory_bias)
            asked = weights if layer is self.layers[-1] else None
            x, written = layer.step(x, layer_past, layer_memory, *biases, projections, beam_size, asked)
            past.append(written)
        return (x if self.final_norm is None else self.final_norm(x)), past

    def compute_output_shape(self, inputs_shape: tuple, memory_shape: tuple | None = None) -> tuple:
        return inputs_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_layers": self.num_layers, "layer": self.layer_settings}
