"""The decoder at one position of every hypothesis.

The beam takes the place of the target length, so that neither the memory nor the
past is ever repeated or reordered.
"""

from typing import Any, NamedTuple

from keras import ops

from t2t_keras.layers.attention.scores import mask_bias
from t2t_keras.layers.decoder import Decoder, DecoderLayer
from t2t_keras.layers.stepping.attention_step import CrossAttentionStep, KeysAndValues, SelfAttentionStep
from t2t_keras.layers.stepping.feed_forward_step import FeedForwardStep

Tensor = Any


class DecoderLayerStep:
    """A `DecoderLayer` without dropout, its kernels made ready once a search.

    Args:
        layer: built.
        dtype: of the kernels; bfloat16 lets products be computed in it.
        beam_size: hypotheses a sentence.

    Attributes:
        self_attention: at one position.
        cross_attention: likewise.
    """

    def __init__(self, layer: DecoderLayer, dtype: str, beam_size: int) -> None:
        self._layer = layer
        self.self_attention = SelfAttentionStep(layer.self_attention, dtype, beam_size)
        self.cross_attention = CrossAttentionStep(layer.cross_attention, dtype, beam_size)
        self._feed_forward = FeedForwardStep(layer.feed_forward, dtype)

    def __call__(
        self,
        inputs: Tensor,
        past: KeysAndValues,
        past_bias: Tensor | None,
        memory: KeysAndValues,
        memory_bias: Tensor | None,
        beside: bool = False,
    ) -> tuple[Tensor, KeysAndValues, Tensor]:
        """One position.

        Args:
            inputs: float [batch * beam, d_model].
            past: of the positions before, [batch, heads, past_len, d_head].
            past_bias: a `mask_bias`, broadcastable to [batch, heads, beam, past_len + beam], or None.
            memory: of the source, [batch, heads, source_len, d_head].
            memory_bias: a `mask_bias`, broadcastable to [batch, heads, beam, source_len], or None.
            beside: whether the past is kept elsewhere; see `SelfAttentionStep.beside`.

        Returns:
            float [batch * beam, d_model]; the past with this position, or with `beside` this position's keys and
            values alone; and the attention to the memory, float [batch, heads, beam, source_len].
        """
        attend_to_past = self.self_attention.beside if beside else self.self_attention
        kept: list[Any] = []

        def self_attention(x: Tensor) -> Tensor:
            attended, keys_and_values = attend_to_past(x, past, past_bias)
            kept.append(keys_and_values)
            return attended

        def cross_attention(x: Tensor) -> Tensor:
            attended, weights = self.cross_attention(x, memory, memory_bias)
            kept.append(weights)
            return attended

        outputs = self._layer.connected(inputs, self_attention, cross_attention, self._feed_forward)
        keys_and_values, weights = kept
        return outputs, keys_and_values, weights


class OwnEntries(NamedTuple):
    """Which of a sentence's entries in the past are each hypothesis' own.

    Attributes:
        is_own: bool [batch, beam, positions * beam]; without positions where the beam is one.
    """

    is_own: Tensor

    @classmethod
    def none(cls, batch: Tensor | int, beam_size: int) -> "OwnEntries":
        """Before the first position."""
        return cls(ops.zeros((batch, beam_size, 0), "bool"))

    def with_newest(self) -> "OwnEntries":
        """With those of one more position, of which each hypothesis has one."""
        batch, beam_size, _ = ops.shape(self.is_own)
        if beam_size == 1:
            return self
        newest = ops.broadcast_to(ops.eye(beam_size, dtype="bool"), (batch, beam_size, beam_size))
        return OwnEntries(ops.concatenate([self.is_own, newest], axis=2))  # --> [batch, beam, positions * beam]

    def bias(self, dtype: str) -> Tensor | None:
        """What hides all entries but a hypothesis' own, [batch, 1, beam, positions * beam]; None if all are."""
        return None if self.is_own.shape[1] == 1 else mask_bias(self.is_own[:, None], dtype)


class DecoderCache(NamedTuple):
    """What the steps of a decoder read and write.

    Attributes:
        past: of each layer, [batch, heads, positions * beam, d_head]; grows by the beam at every position.
        memory: of each layer, [batch, heads, source_len, d_head].
        memory_bias: a `mask_bias` of the source, [batch, 1, 1, source_len].
    """

    past: tuple[KeysAndValues, ...]
    memory: tuple[KeysAndValues, ...]
    memory_bias: Tensor


class DecoderStep:
    """A `Decoder` without dropout, its kernels made ready once a search.

    Args:
        decoder: built.
        dtype: of the kernels; bfloat16 lets products be computed in it.
        beam_size: hypotheses a sentence.
    """

    def __init__(self, decoder: Decoder, dtype: str, beam_size: int) -> None:
        self._decoder = decoder
        self.layers = [DecoderLayerStep(layer, dtype, beam_size) for layer in decoder.layers]

    def begin(self, memory: Tensor, memory_mask: Tensor) -> DecoderCache:
        """The cache before the first position.

        Args:
            memory: float [batch, source_len, d_model].
            memory_mask: bool [batch, 1, 1, source_len], True = may attend.
        """
        memories = tuple(layer.cross_attention.project(memory) for layer in self.layers)
        batch, dtype = ops.shape(memory)[0], memories[0].keys.dtype
        past = tuple(layer.self_attention.no_past(batch, dtype) for layer in self.layers)
        return DecoderCache(past, memories, mask_bias(memory_mask, self._decoder.compute_dtype))

    def __call__(
        self, inputs: Tensor, cache: DecoderCache, past_bias: Tensor | None
    ) -> tuple[Tensor, tuple[KeysAndValues, ...], Tensor]:
        """The stack at one position.

        Args:
            inputs: float [batch * beam, d_model].
            cache: of `begin`, with the past of the position before.
            past_bias: a `mask_bias`, broadcastable to [batch, heads, beam, past_len + beam], or None.

        Returns:
            float [batch * beam, d_model]; the past with this position; and the last layer's attention to the memory,
            float [batch, heads, beam, source_len].
        """
        x, written = inputs, []
        for layer, past, memory in zip(self.layers, cache.past, cache.memory, strict=True):
            x, past, weights = layer(x, past, past_bias, memory, cache.memory_bias)
            written.append(past)
        return self._decoder.normalised(x), tuple(written), weights
