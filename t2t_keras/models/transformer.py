"""The Transformer (Figure 1) as one Keras model."""

from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_keras.config import TransformerConfig
from t2t_keras.kernels.contexts import ProductDtype
from t2t_keras.layers import Decoder, Dropout, Encoder, causal_mask, padding_mask, token_rows
from t2t_keras.layers.attention.multi_head import KeysAndValues
from t2t_keras.layers.collectors import AttentionWeights, AuxiliaryLosses
from t2t_keras.layers.dropout import fold_in
from t2t_keras.layers.position import LearnedPositions, SinusoidalPositions
from t2t_keras.layers.trainable_parts import part_arguments
from t2t_keras.models.contract import ATTENTION, BFLOAT16, COVERAGE, Attentions, Cache, Search, States, initial_coverage
from t2t_keras.models.encoder_decoder import EncoderDecoder
from t2t_keras.tensor import Tensor


class Ancestry(NamedTuple):
    """Marks the entries of the past that belong to each hypothesis.

    At each position, the past has an entry for each hypothesis of the beam. One of these entries belongs to the
    ancestor of a hypothesis at that position.

    Attributes:
        is_ancestor: bool [batch, beam, positions * beam]. With a beam of 1, all entries belong to the only hypothesis,
            and positions stays 0.
    """

    is_ancestor: Tensor

    @classmethod
    def empty(cls, batch: Tensor | int, beam_size: int) -> "Ancestry":
        """The state before the first position, without entries."""
        return cls(ops.zeros((batch, beam_size, 0), "bool"))

    def with_newest(self) -> "Ancestry":
        """Adds a position, at which each hypothesis has one entry."""
        batch, beam_size, _ = ops.shape(self.is_ancestor)
        if beam_size == 1:
            return self
        newest = ops.broadcast_to(ops.eye(beam_size, dtype="bool"), (batch, beam_size, beam_size))
        return Ancestry(ops.concatenate([self.is_ancestor, newest], axis=2))  # --> [batch, beam, positions * beam]

    def newest(self, window: int | None) -> "Ancestry":
        """Keeps the entries of the last `window` positions; None or 0 keeps all."""
        return Ancestry(self.is_ancestor[:, :, -window * self.is_ancestor.shape[1] :]) if window else self

    @property
    def mask(self) -> Tensor | None:
        """Mask that hides other hypotheses' entries, bool [batch, 1, beam, positions * beam]; None if beam is 1."""
        return None if self.is_ancestor.shape[1] == 1 else self.is_ancestor[:, None]  # --> [batch, 1, beam, keys]


class SourceCache(NamedTuple):
    """The source in the form that search steps read.

    Attributes:
        memory: each layer's keys and values of the memory.
        mask: the source's `padding_mask`, bool [batch, 1, 1, source_len].
    """

    memory: tuple[KeysAndValues, ...]
    mask: Tensor


@keras.saving.register_keras_serializable(package="t2t_keras")
class Transformer(EncoderDecoder):
    """The encoder-decoder of "Attention Is All You Need" (section 3); see `EncoderDecoder` for its call.

    Args:
        config: the model settings.

    Reference: Vaswani et al., "Attention Is All You Need", 2017.

    Example:
        >>> model = Transformer.from_preset("tiny", vocab_size=100)
        >>> model({"source": np.array([[3, 4, 1]]), "target": np.array([[5, 1]])}).shape
        TensorShape([1, 2, 100])
    """

    config_class = TransformerConfig
    capabilities = frozenset({ATTENTION, BFLOAT16, COVERAGE})

    def __init__(self, config: TransformerConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.source_positions = self._positions("source_positions")
        self.target_positions = self._positions("target_positions")
        self.source_dropout = Dropout(config.dropout_rate, name="source_dropout", **part_arguments(self))
        self.target_dropout = Dropout(config.dropout_rate, name="target_dropout", **part_arguments(self))
        self.encoder = Encoder(config.num_encoder_layers, config, name="encoder", **part_arguments(self))
        self.decoder = Decoder(config.num_decoder_layers, config, name="decoder", **part_arguments(self))

    def has_output_bias(self) -> bool:
        return self.config.use_output_bias

    def build_layers(self) -> None:
        states = (None, None, self.config.d_model)
        for layer in (self.source_positions, self.target_positions, self.encoder, self.decoder):
            if not layer.built:  # a part that was called directly is built already
                layer.build(*[states] * (2 if layer is self.decoder else 1))

    def states(
        self,
        inputs: dict[str, Tensor],
        *,
        seed: Tensor | None = None,
        training: bool | None = False,
        skip_padding: bool = False,
    ) -> States:
        """Computes Figure 1 up to the final "Linear"; see `ScoringModel.states`.

        `skip_padding` leaves padding out of the feed-forward networks. This is faster and does not change the state of
        any token, but it makes shapes depend on the data, which XLA does not support.

        Returns:
            The hidden states that `logits` takes, float [batch, target_len, d_model], and the experts' balance losses,
            weighted by the number of target tokens of each sentence.
        """
        self.ensure_built()
        source, target = inputs["source"], inputs["target"]
        source_mask = padding_mask(source)
        mode = {} if training is None else {"training": training}

        source_seed = fold_in(seed, 0)
        source_rows = token_rows(source) if skip_padding else None
        with AuxiliaryLosses(ops.not_equal(source, 0)) as source_losses:
            x = self.source_positions(self.source_embedding(source))  # --> [batch, source_len, d_model]
            x = self.source_dropout(x, seed=fold_in(source_seed, 0), **mode)
            memory = self.encoder(x, source_mask, seed=fold_in(source_seed, 1), token_rows=source_rows, **mode)

        target_seed = fold_in(seed, 1)
        target_rows = token_rows(target) if skip_padding else None
        # Padding comes after the tokens, so the causal mask also hides it from them. The decoder's window is causal.
        target_mask = None if self.config.attention_window else causal_mask(target)
        with AuxiliaryLosses(ops.not_equal(target, 0)) as target_losses:
            x = self.target_positions(self.embed_targets(target))  # shifted right --> [batch, target_len, d_model]
            x = self.target_dropout(x, seed=fold_in(target_seed, 0), **mode)
            masks = target_mask, source_mask
            hidden = self.decoder(x, memory, *masks, seed=fold_in(target_seed, 1), token_rows=target_rows, **mode)

        tokens = ops.cast(ops.count_nonzero(target, axis=1), "float32")  # --> [batch]
        return States(hidden, ops.sum(tokens * (source_losses.total() + target_losses.total())))

    def encode(self, source: Tensor) -> Tensor:
        """Encodes a source (section 3.1): int [batch, source_len], padded with 0 --> [batch, source_len, d_model]."""
        self.ensure_built()
        x = self.source_positions(self.source_embedding(source))  # --> [batch, source_len, d_model]
        return self.encoder(x, padding_mask(source), training=False)

    def logits_and_attention(self, inputs: dict[str, Tensor]) -> tuple[Tensor, Attentions]:
        """The logits without dropout, and the three kinds of attention of section 3.2.3; see `AttentionViews`.

        Padding receives no weight as a key, but rows of padding queries have weights too.
        """
        with AttentionWeights() as collector:
            hidden = self.states(inputs).hidden
        count = self.config.num_encoder_layers
        encoder, decoder = collector.weights[:count], collector.weights[count:]
        views = (encoder, decoder[0::2], decoder[1::2])  # a decoder layer attends to itself, then to the memory
        stacked = (ops.stack(weights, axis=1) for weights in views)  # --> [batch, layers, heads, query_len, key_len]
        return self.logits(hidden), Attentions(*(ops.cast(weights, "float32") for weights in stacked))

    def alignment_attention(self, inputs: dict[str, Tensor]) -> Tensor:
        """Attention to the source in the second-to-last decoder layer, float32 [batch, target_len, source_len].

        The weights are averaged over the heads; a decoder with a single layer uses that one. This layer best shows
        which source token a target token comes from: row t belongs to the prediction of target t. The layer above it is
        not computed.
        """
        self.ensure_built()
        source, target = inputs["source"], inputs["target"]
        x = self.target_positions(self.embed_targets(target))  # shifted right --> [batch, target_len, d_model]
        target_mask = None if self.config.attention_window else causal_mask(target)
        memory, masks = self.encode(source), (target_mask, padding_mask(source))
        *lower_layers, layer = self.decoder.layers[: max(self.config.num_decoder_layers - 1, 1)]
        for lower in lower_layers:
            x = lower(x, memory, *masks, training=False)
        with AttentionWeights() as collector:
            layer(x, memory, *masks, training=False)
        _, weights = collector.weights  # --> [batch, heads, target_len, source_len]
        return ops.mean(ops.cast(weights, "float32"), axis=1)

    def start_search(
        self, source: Tensor, memory: Tensor, beam_size: int, *, capabilities: frozenset[str] = frozenset()
    ) -> Search:
        """Prepares a search; see `StepModel.start_search`.

        `COVERAGE` sums the last layer's attention to the source, averaged over heads. `BFLOAT16` multiplies with the
        weights in bfloat16.
        """
        self.ensure_built()
        dtype, logits_of = self.step_products(capabilities)
        window, d_model = self.config.attention_window, self.config.d_model

        def step(token_ids: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
            x = self.target_embedding(token_ids[:, None])  # --> [batch * beam, 1, d_model]
            x = self.target_positions(x, start=cache.position)
            # In a step, the beam takes the place of the target length.
            x = ops.reshape(x, (-1, beam_size, d_model))  # --> [batch, beam, d_model]
            ancestry, coverage = cache.per_hypothesis.with_newest(), cache.coverage
            # With row indices, experts compute with shapes that depend on the data, which is faster.
            rows = ops.arange(ops.shape(token_ids)[0], dtype="int32") if self.config.num_experts else None
            with AttentionWeights() as collector, ProductDtype(dtype):
                memory, mask = cache.source
                x, past = self.decoder(
                    x, memory, ancestry.mask, mask, token_rows=rows, past=cache.per_sentence, training=False
                )
            if COVERAGE in capabilities:
                weights = ops.cast(collector.weights[-1], "float32")  # [batch, heads, beam, source_len]
                coverage += ops.mean(weights, axis=1)  # --> [batch, beam, source_len]
            if window:
                past = tuple(each.newest(window * beam_size) for each in past)
            logits = logits_of(ops.reshape(x, (-1, d_model)))  # --> [batch * beam, vocab]
            return logits, Cache(cache.position + 1, ancestry.newest(window), past, cache.source, coverage)

        batch = ops.shape(memory)[0]
        source_cache = SourceCache(self.decoder.keys_and_values(memory), padding_mask(source))
        past, ancestry = self.decoder.empty_past(batch), Ancestry.empty(batch, beam_size)
        coverage = initial_coverage(source, beam_size, capabilities)
        return Search(step, Cache(ops.zeros((), "int32"), ancestry, past, source_cache, coverage))

    def _positions(self, name: str) -> keras.layers.Layer:
        if self.config.position_encoding == "learned":
            return LearnedPositions(self.config.max_positions, name=name, **part_arguments(self))
        halves = self.config.position_encoding == "sinusoidal_halves"
        return SinusoidalPositions("halves" if halves else "interleaved", name=name, **part_arguments(self))
