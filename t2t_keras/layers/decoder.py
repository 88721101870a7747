"""The decoder (right half of Figure 1)."""

import inspect
from collections.abc import Sequence
from typing import Any

import keras

from t2t_keras.config.layer_settings import LayerSettings
from t2t_keras.layers.attention.multi_head import KeysAndValues, MultiHeadAttention
from t2t_keras.layers.dropout import fold_in
from t2t_keras.layers.experts import feed_forward_layer
from t2t_keras.layers.layer import input_spec_of
from t2t_keras.layers.residual import Residual
from t2t_keras.layers.stack import Stack
from t2t_keras.layers.trainable_parts import part_arguments
from t2t_keras.layers.weight_options import ConfiguredLayer
from t2t_keras.tensor import Tensor


@keras.saving.register_keras_serializable(package="t2t_keras")
class DecoderLayer(ConfiguredLayer):
    """Masked self-attention, attention to the memory, and a feed-forward network or experts (section 3.1).

    Each sub-layer is wrapped in an "Add & Norm", a `Residual`.

    Args:
        settings: a `LayerSettings`; None means its defaults, the paper's base model.
        kwargs: individual fields of `LayerSettings`, such as `num_heads`, `d_ff` or `dropout_rate`, which override
            `settings`; `kernel_initializer` and the other options of all kernels and biases inside, as in
            `WeightedLayer`; and the arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: float [batch, target_len, d_model].
        memory: float [batch, source_len, d_model], the encoder's output, or its projection by the `keys_and_values`
            method of `cross_attention`.
        self_attention_mask: bool, broadcastable to [batch, heads, target_len, target_len]; normally `causal_mask`, or
            None with `use_causal_mask` or with a window, which hides later positions too.
        cross_attention_mask: bool, broadcastable to [batch, heads, target_len, source_len]; normally `padding_mask`.
        seed: int32 [2], for all dropout inside; None draws seeds.
        token_rows: int32 [tokens], from `token_rows`: rows that the feed-forward network computes; None means all.
        past: keys and values of `self_attention` at earlier positions. `self_attention_mask` then covers past and
            current positions, [batch, heads, target_len, past_len + target_len], and a window is ignored.
        use_causal_mask: whether self-attention also hides later positions.

    If `inputs` or `memory` has a Keras mask, the attention to it also applies that mask. With a `past`, the mask of
    `inputs` is ignored.

    Returns:
        float [batch, target_len, d_model]. If `past` is given, a tuple of that and the extended past.
    """

    def __init__(self, settings: LayerSettings | None = None, **kwargs: Any) -> None:
        super().__init__(settings, **kwargs)
        settings, shared = self.settings, part_arguments(self)
        options = {**shared, **self.weight_options}
        self.self_attention = MultiHeadAttention(
            **settings.attention, window=settings.window(causal=True), name="self_attention", **options
        )
        self.self_attention_residual = Residual(**settings.residual, name="self_attention_residual", **shared)
        self.cross_attention = MultiHeadAttention(**settings.attention, name="cross_attention", **options)
        self.cross_attention_residual = Residual(**settings.residual, name="cross_attention_residual", **shared)
        self.feed_forward = feed_forward_layer(settings, **options)
        self.feed_forward_residual = Residual(**settings.residual, name="feed_forward_residual", **shared)

    def build(self, inputs_shape: tuple, memory_shape: tuple) -> None:
        self.input_spec = input_spec_of(3, inputs_shape)
        input_spec_of(3, memory_shape, name="memory")
        self.self_attention.build(inputs_shape, inputs_shape)
        self.self_attention_residual.build(inputs_shape)
        self.cross_attention.build(inputs_shape, memory_shape)
        self.cross_attention_residual.build(inputs_shape)
        self.feed_forward.build(inputs_shape)
        self.feed_forward_residual.build(inputs_shape)

    def call(
        self,
        inputs: Tensor,
        memory: Tensor | KeysAndValues,
        self_attention_mask: Tensor | None = None,
        cross_attention_mask: Tensor | None = None,
        seed: Tensor | None = None,
        token_rows: Tensor | None = None,
        past: KeysAndValues | None = None,
        use_causal_mask: bool = False,
    ) -> Any:
        causal = {"use_causal_mask": use_causal_mask}

        def attend_to_targets(x: Tensor) -> Tensor:
            nonlocal past
            if past is None:
                return self.self_attention(x, x, self_attention_mask, seed=fold_in(seed, 1), **causal)
            x, past = self.self_attention(x, x, self_attention_mask, seed=fold_in(seed, 1), past=past, **causal)
            return x

        x = self.self_attention_residual(inputs, sublayer=attend_to_targets, seed=fold_in(seed, 0))
        x = self.cross_attention_residual(
            x,
            sublayer=lambda x: self.cross_attention(x, memory, cross_attention_mask, seed=fold_in(seed, 3)),
            seed=fold_in(seed, 2),
        )
        x = self.feed_forward_residual(
            x,
            sublayer=lambda x: self.feed_forward(x, seed=fold_in(seed, 5), token_rows=token_rows),
            seed=fold_in(seed, 4),
        )
        return x if past is None else (x, past)

    def compute_output_spec(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = super().compute_output_spec(inputs, *args, **kwargs)
        past = inspect.signature(self.call).bind_partial(inputs, *args, **kwargs).arguments.get("past")
        return outputs if past is None else (outputs, past.extended_spec(inputs.shape[1], self.compute_dtype))


@keras.saving.register_keras_serializable(package="t2t_keras")
class Decoder(Stack):
    """A `Stack` of `DecoderLayer`.

    Call arguments:
        inputs: float [batch, target_len, d_model], embedded target tokens with position encodings,
            shifted right by one.
        memory: float [batch, source_len, d_model], the encoder's output, or its projection by `keys_and_values`.
        self_attention_mask, cross_attention_mask, seed, token_rows, use_causal_mask: as in `DecoderLayer`.
        past: one per layer, as in `DecoderLayer`.

    Returns:
        float [batch, target_len, d_model]. If `past` is given, a tuple of that and the extended past of each layer.

    Example:
        >>> decoder = Decoder(num_layers=2, num_heads=2, d_ff=16)
        >>> decoder(np.ones([2, 3, 8], "float32"), np.ones([2, 5, 8], "float32")).shape
        TensorShape([2, 3, 8])
    """

    layer_class = DecoderLayer

    def build(self, inputs_shape: tuple, memory_shape: tuple) -> None:
        self.build_layers(inputs_shape, memory_shape)

    def call(
        self,
        inputs: Tensor,
        memory: Tensor | Sequence[KeysAndValues],
        self_attention_mask: Tensor | None = None,
        cross_attention_mask: Tensor | None = None,
        seed: Tensor | None = None,
        token_rows: Tensor | None = None,
        past: Sequence[KeysAndValues] | None = None,
        use_causal_mask: bool = False,
    ) -> Any:
        for name, value in (("memory", memory), ("past", past)):
            if isinstance(value, tuple | list) and (isinstance(value, KeysAndValues) or len(value) != len(self.layers)):
                raise ValueError(f"`{name}` must have `KeysAndValues` of each of the {len(self.layers)} layers")
        x, masks, new_past = inputs, (self_attention_mask, cross_attention_mask), []
        for index, layer in enumerate(self.layers):
            layer_memory = memory[index] if isinstance(memory, tuple | list) else memory
            arguments = {"seed": fold_in(seed, index), "token_rows": token_rows, "use_causal_mask": use_causal_mask}
            if past is None:
                x = layer(x, layer_memory, *masks, **arguments)
            else:
                x, layer_past = layer(x, layer_memory, *masks, **arguments, past=past[index])
                new_past.append(layer_past)
        return self.apply_final_norm(x) if past is None else (self.apply_final_norm(x), tuple(new_past))

    def compute_output_spec(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = super().compute_output_spec(inputs, *args, **kwargs)
        past = inspect.signature(self.call).bind_partial(inputs, *args, **kwargs).arguments.get("past")
        if past is None:
            return outputs
        return outputs, tuple(each.extended_spec(inputs.shape[1], self.compute_dtype) for each in past)

    def keys_and_values(self, memory: Tensor) -> tuple[KeysAndValues, ...]:
        """Projects a memory, float [batch, source_len, d_model], to each layer's keys and values."""
        return tuple(layer.cross_attention.keys_and_values(memory) for layer in self.layers)

    def empty_past(self, batch: Tensor | int) -> tuple[KeysAndValues, ...]:
        """The past of each layer before the first position."""
        return tuple(layer.self_attention.empty_keys_and_values(batch) for layer in self.layers)
