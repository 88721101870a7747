"""The decoder in one step of a search.

The beam takes the place of the target length, so neither the memory nor the past is ever repeated or reordered.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from keras import ops

from t2t_keras import kernels
from t2t_keras.layers.attention.scores import mask_bias
from t2t_keras.layers.decoder import Decoder, DecoderLayer
from t2t_keras.layers.experts import ExpertWeights, MixtureOfExperts, mixture
from t2t_keras.layers.feed_forward import FeedForward
from t2t_keras.layers.stepping.attention_step import (
    CrossAttentionStep,
    KeysAndValues,
    SelfAttentionStep,
    projected_memories,
)
from t2t_keras.layers.stepping.projections import Projections
from t2t_keras.tensor import Tensor


class FeedForwardStep:
    """A built `FeedForward` without dropout, its kernels made ready once per search."""

    def __init__(self, layer: FeedForward, projections: Projections) -> None:
        self._layer = layer
        self._inner = projections.of_inputs(layer.inner_kernel, layer.inner_bias)
        self._outer = projections.of_outputs(layer.outer_kernel, layer.outer_bias)

    def __call__(self, inputs: Tensor) -> Tensor:
        """float [batch * beam, d_model] --> the same."""
        inner = kernels.linear(inputs, *self._inner)  # --> [rows, d_ff]
        return kernels.linear(self._layer.activate(inner), *self._outer)  # --> [rows, d_model]


class MixtureStep:
    """A built `MixtureOfExperts` without noise and dropout; all kernels but the gates' are cast once per search."""

    def __init__(self, layer: MixtureOfExperts, dtype: str) -> None:
        self._layer = layer
        inner, outer = ops.cast(layer.inner_kernels, dtype), ops.cast(layer.outer_kernels, dtype)
        self._weights = ExpertWeights(inner, layer.inner_biases, outer, layer.outer_biases)

    def __call__(self, inputs: Tensor) -> Tensor:
        """float [batch * beam, d_model] --> the same; a hypothesis costs `experts_per_token` experts."""
        return mixture(inputs, self._layer.gating(inputs), self._weights, kernels.grouped_linear)


class DecoderLayerStep:
    """A built `DecoderLayer` without dropout, its kernels cast to `dtype` once per search."""

    def __init__(self, layer: DecoderLayer, dtype: str, beam_size: int) -> None:
        self._layer = layer
        of_self_attention, of_cross_attention, of_feed_forward = self.projections(layer, dtype)
        self.self_attention = SelfAttentionStep(layer.self_attention, of_self_attention, beam_size)
        self.cross_attention = CrossAttentionStep(layer.cross_attention, of_cross_attention, beam_size)
        self._feed_forward: Callable[[Tensor], Tensor]
        if isinstance(layer.feed_forward, MixtureOfExperts):
            self._feed_forward = MixtureStep(layer.feed_forward, dtype)
        else:
            self._feed_forward = FeedForwardStep(layer.feed_forward, of_feed_forward)

    def projections(self, layer: DecoderLayer, dtype: str) -> Sequence[Projections]:
        """What makes the projections of the three sub-layers ready."""
        return [Projections(dtype)] * 3

    def connect(self, inputs: Tensor, sublayers: Sequence[Callable[[Tensor], Tensor]]) -> Tensor:
        """The three sub-layers' functions, each in "Add & Norm": float [batch * beam, d_model] --> the same."""
        return self._layer(inputs, None, sublayers=sublayers, training=False)

    def __call__(
        self,
        inputs: Tensor,
        past: KeysAndValues,
        past_bias: Tensor | None,
        memory: KeysAndValues,
        memory_bias: Tensor | None,
        beside: bool = False,
    ) -> tuple[Tensor, KeysAndValues, Tensor]:
        """Computes one position of every hypothesis: float [batch * beam, d_model] --> the same.

        Returns the outputs, the past with this position, and the attention to the memory, float [batch, heads, beam,
        source_len]. With `beside`, the attention steps' `beside` are what attends, and this position's keys and values
        are returned alone instead of the past. For the other arguments see the calls of the attention steps.
        """
        attend_to_past = self.self_attention.beside if beside else self.self_attention
        attend_to_memory = self.cross_attention.beside if beside else self.cross_attention
        kept: list[Any] = []

        def self_attention(x: Tensor) -> Tensor:
            attended, keys_and_values = attend_to_past(x, past, past_bias)
            kept.append(keys_and_values)
            return attended

        def cross_attention(x: Tensor) -> Tensor:
            attended, weights = attend_to_memory(x, memory, memory_bias)
            kept.append(weights)
            return attended

        outputs = self.connect(inputs, (self_attention, cross_attention, self._feed_forward))
        keys_and_values, weights = kept
        return outputs, keys_and_values, weights


class OwnEntries(NamedTuple):
    """Which past entries belong to each hypothesis: bool [batch, beam, positions * beam]; no positions if beam is 1."""

    is_own: Tensor

    @classmethod
    def none(cls, batch: Tensor | int, beam_size: int) -> "OwnEntries":
        """The entries before the first position: none."""
        return cls(ops.zeros((batch, beam_size, 0), "bool"))

    def with_newest(self) -> "OwnEntries":
        """Adds one position, at which each hypothesis has one entry."""
        batch, beam_size, _ = ops.shape(self.is_own)
        if beam_size == 1:
            return self
        newest = ops.broadcast_to(ops.eye(beam_size, dtype="bool"), (batch, beam_size, beam_size))
        return OwnEntries(ops.concatenate([self.is_own, newest], axis=2))  # --> [batch, beam, positions * beam]

    def newest(self, window: int | None) -> "OwnEntries":
        """Those of the last `window` positions; None or 0 keeps all."""
        return OwnEntries(self.is_own[:, :, -window * self.is_own.shape[1] :]) if window else self

    def bias(self, dtype: str) -> Tensor | None:
        """The bias that hides other hypotheses' entries, [batch, 1, beam, positions * beam]; None if beam is 1."""
        return None if self.is_own.shape[1] == 1 else mask_bias(self.is_own[:, None], dtype)


class DecoderCache(NamedTuple):
    """What the steps of a decoder read and write.

    Attributes:
        past: of each layer, float [batch, heads, positions * beam, d_head]; every position adds `beam` entries, and
            those leave that a window has passed.
        memory: of each layer, float [batch, heads, source_len, d_head].
        memory_bias: a `mask_bias` of the source, [batch, 1, 1, source_len].
    """

    past: tuple[KeysAndValues, ...]
    memory: tuple[KeysAndValues, ...]
    memory_bias: Tensor


class DecoderStep:
    """A built `Decoder` without dropout, its kernels cast to `dtype` once per search.

    With bfloat16, a step's products with the kernels are computed in it; the memory's keys and values, made once, are
    not. `beam_size` is the number of hypotheses per sentence.
    """

    layer_class: ClassVar[type[DecoderLayerStep]] = DecoderLayerStep

    def __init__(self, decoder: Decoder, dtype: str, beam_size: int) -> None:
        self._decoder = decoder
        self.layers = [self.layer_class(layer, dtype, beam_size) for layer in decoder.layers]

    def begin(self, memory: Tensor, memory_mask: Tensor) -> DecoderCache:
        """The first cache, from a memory [batch, source_len, d_model] and its bool mask [batch, 1, 1, source_len]."""
        memories = projected_memories([layer.cross_attention for layer in self.layers], memory)
        batch, dtype = ops.shape(memory)[0], memories[0].keys.dtype
        past = tuple(layer.self_attention.no_past(batch, dtype) for layer in self.layers)
        return DecoderCache(past, memories, mask_bias(memory_mask, self._decoder.compute_dtype))

    def __call__(
        self, inputs: Tensor, cache: DecoderCache, past_bias: Tensor | None
    ) -> tuple[Tensor, tuple[KeysAndValues, ...], Tensor]:
        """Computes one position of every hypothesis, float [batch * beam, d_model]; arguments as in `DecoderLayerStep`.

        Returns the outputs, each layer's past with this position, and the last layer's attention to the memory, float
        [batch, heads, beam, source_len].
        """
        x, written = inputs, []
        for layer, past, memory in zip(self.layers, cache.past, cache.memory, strict=True):
            x, past, weights = layer(x, past, past_bias, memory, cache.memory_bias)
            written.append(past)
        return self._decoder.normalised(x), tuple(written), weights
