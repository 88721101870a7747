"""The encoder (left half of Figure 1)."""

from typing import Any

import keras

from t2t_keras.config.layer_settings import LayerSettings
from t2t_keras.layers.attention.multi_head import MultiHeadAttention
from t2t_keras.layers.dropout import fold_in
from t2t_keras.layers.experts import feed_forward_layer
from t2t_keras.layers.layer import input_spec_of
from t2t_keras.layers.residual import Residual
from t2t_keras.layers.stack import Stack
from t2t_keras.layers.trainable_parts import part_arguments
from t2t_keras.layers.weight_options import ConfiguredLayer
from t2t_keras.tensor import Tensor


@keras.saving.register_keras_serializable(package="t2t_keras")
class EncoderLayer(ConfiguredLayer):
    """Self-attention, and a feed-forward network or experts (section 3.1).

    Each sub-layer is wrapped in an "Add & Norm", a `Residual`.

    Args:
        settings: a `LayerSettings`; None means its defaults, the paper's base model.
        kwargs: individual fields of `LayerSettings`, such as `num_heads`, `d_ff` or `dropout_rate`, which override
            `settings`; `kernel_initializer` and the other options of all kernels and biases inside, as in
            `WeightedLayer`; and the arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: float [batch, source_len, d_model].
        self_attention_mask: bool, broadcastable to [batch, heads, source_len, source_len]; normally `padding_mask`.
            With a window, it must be the same for all queries.
        seed: int32 [2], for all dropout inside; None draws seeds.
        token_rows: int32 [tokens], from `token_rows`: rows that the feed-forward network computes; None means all.
        use_causal_mask: whether self-attention also hides later positions.

    If `inputs` has a Keras mask, self-attention also applies that mask.

    Returns:
        float [batch, source_len, d_model].
    """

    def __init__(self, settings: LayerSettings | None = None, **kwargs: Any) -> None:
        super().__init__(settings, **kwargs)
        settings, shared = self.settings, part_arguments(self)
        options = {**shared, **self.weight_options}
        self.self_attention = MultiHeadAttention(
            **settings.attention, window=settings.window(causal=False), name="self_attention", **options
        )
        self.self_attention_residual = Residual(**settings.residual, name="self_attention_residual", **shared)
        self.feed_forward = feed_forward_layer(settings, **options)
        self.feed_forward_residual = Residual(**settings.residual, name="feed_forward_residual", **shared)

    def build(self, input_shape: tuple) -> None:
        self.input_spec = input_spec_of(3, input_shape)
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
        use_causal_mask: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            return self.self_attention(
                x, x, self_attention_mask, seed=fold_in(seed, 1), use_causal_mask=use_causal_mask
            )

        x = self.self_attention_residual(inputs, sublayer=attend, seed=fold_in(seed, 0))
        return self.feed_forward_residual(
            x,
            sublayer=lambda x: self.feed_forward(x, seed=fold_in(seed, 3), token_rows=token_rows),
            seed=fold_in(seed, 2),
        )


@keras.saving.register_keras_serializable(package="t2t_keras")
class Encoder(Stack):
    """A `Stack` of `EncoderLayer`.

    Call arguments:
        inputs: float [batch, source_len, d_model], embedded source tokens with position encodings.
        self_attention_mask, seed, token_rows, use_causal_mask: as in `EncoderLayer`.

    Returns:
        The memory, float [batch, source_len, d_model].

    Example:
        >>> encoder = Encoder(num_layers=2, num_heads=2, d_ff=16)
        >>> encoder(np.ones([2, 5, 8], "float32")).shape
        TensorShape([2, 5, 8])
    """

    layer_class = EncoderLayer

    def build(self, input_shape: tuple) -> None:
        self.build_layers(input_shape)

    def call(
        self,
        inputs: Tensor,
        self_attention_mask: Tensor | None = None,
        seed: Tensor | None = None,
        token_rows: Tensor | None = None,
        use_causal_mask: bool = False,
    ) -> Tensor:
        x, arguments = inputs, {"token_rows": token_rows, "use_causal_mask": use_causal_mask}
        for index, layer in enumerate(self.layers):
            x = layer(x, self_attention_mask, seed=fold_in(seed, index), **arguments)
        return self.apply_final_norm(x)
