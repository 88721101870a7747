"""The Transformer (Figure 1) as one Keras model."""

from typing import Any

import keras
from keras import ops

from t2t_keras import kernels
from t2t_keras.config import TransformerConfig
from t2t_keras.layers import Decoder, Dropout, Encoder, causal_mask, padding_mask, token_rows
from t2t_keras.layers.dropout import fold_in
from t2t_keras.layers.position import LearnedPositions, SinusoidalPositions
from t2t_keras.layers.settings import LayerSettings
from t2t_keras.layers.stepping import DecoderCache, DecoderStep, OwnEntries
from t2t_keras.models.contract import (
    ATTENTION,
    BFLOAT16,
    COVERAGE,
    Attentions,
    Cache,
    Search,
    States,
    first_coverage,
)
from t2t_keras.models.encoder_decoder import EncoderDecoder

Tensor = Any


@keras.saving.register_keras_serializable(package="t2t_keras")
class Transformer(EncoderDecoder):
    """The encoder-decoder of "Attention Is All You Need" (section 3); see `EncoderDecoder` for its call.

    Args:
        config: sizes and choices.

    Reference:
        Vaswani et al., "Attention Is All You Need", 2017.
    """

    config_class = TransformerConfig
    offers = frozenset({ATTENTION, BFLOAT16, COVERAGE})

    def __init__(self, config: TransformerConfig, **kwargs: Any) -> None:
        super().__init__(config, output_bias=config.use_output_bias, **kwargs)
        d_key, d_value = config.head_widths()
        layer = LayerSettings(
            num_heads=config.num_heads,
            d_key=d_key,
            d_value=d_value,
            d_ff=config.d_ff,
            dropout_rate=config.dropout_rate,
            attention_dropout_rate=config.attention_dropout_rate,
            relu_dropout_rate=config.relu_dropout_rate,
            norm_position=config.norm_position,
            use_attention_bias=config.use_attention_bias,
            layer_norm_epsilon=config.layer_norm_epsilon,
            num_experts=config.num_experts,
            experts_per_token=config.experts_per_token,
            d_expert=config.d_expert,
            gate_noise=config.gate_noise,
            balance_weight=config.balance_weight,
            attention_score=config.attention_score,
            activation=config.activation,
            attention_window=config.attention_window,
            query_key_initializer=config.query_key_initializer,
        )
        self.source_positions = self._positions("source_positions")
        self.target_positions = self._positions("target_positions")
        self.source_dropout = Dropout(config.dropout_rate, name="source_dropout", dtype=self.dtype_policy)
        self.target_dropout = Dropout(config.dropout_rate, name="target_dropout", dtype=self.dtype_policy)
        self.encoder = Encoder(config.num_encoder_layers, layer, name="encoder", dtype=self.dtype_policy)
        self.decoder = Decoder(config.num_decoder_layers, layer, name="decoder", dtype=self.dtype_policy)

    def build(self, input_shape: Any = None) -> None:
        super().build(input_shape)
        states = (None, None, self.config.d_model)
        for positions in (self.source_positions, self.target_positions):
            positions.build(states)
        self.encoder.build(states)
        self.decoder.build(states, states)

    def states(
        self,
        inputs: dict[str, Tensor],
        *,
        seed: Tensor | None = None,
        training: bool | None = False,
        skip_padding: bool = False,
    ) -> States:
        """Hidden states as `logits` takes them, float [batch, target_len, d_model], and the experts' balance losses.

        Arguments are those of the call. `skip_padding` leaves padding out of the feed-forward networks, which is faster
        and changes no token's state, but makes shapes depend on the data, which XLA does not allow.
        """
        source, target = inputs["source"], inputs["target"]
        memory, of_source = self._encoded(source, fold_in(seed, 0), training, skip_padding)
        hidden, of_target = self._decoded(target, memory, source, fold_in(seed, 1), training, skip_padding)
        tokens = ops.cast(ops.count_nonzero(target, axis=1), "float32")  # --> [batch]
        return States(hidden, ops.sum(tokens * (of_source + of_target)))

    def encode(
        self,
        source: Tensor,
        seed: Tensor | None = None,
        training: bool | None = False,
        skip_padding: bool = False,
    ) -> Tensor:
        """The memory of a source (3.1): int [batch, source_len], 0 is padding --> [batch, source_len, d_model].

        The other arguments are those of `states`.
        """
        return self._encoded(source, seed, training, skip_padding)[0]

    def _encoded(
        self, source: Tensor, seed: Tensor | None, training: bool | None, skip_padding: bool
    ) -> tuple[Tensor, Tensor]:
        """The memory, and the balance loss of each sentence."""
        x = self.source_dropout(self._embedded_sources(source), seed=fold_in(seed, 0), training=training)
        others = _of_rows(source, skip_padding, training)
        return self.encoder.with_balance_loss(x, padding_mask(source), seed=fold_in(seed, 1), **others)

    def decode(
        self,
        target: Tensor,
        memory: Tensor,
        source: Tensor,
        seed: Tensor | None = None,
        training: bool | None = False,
        skip_padding: bool = False,
    ) -> Tensor:
        """The decoder's hidden states over whole targets (3.1), shifted right: float [batch, target_len, d_model].

        `target`, int [batch, target_len], and `source`, int [batch, source_len], are padded with 0; `memory` is from
        `encode`, and the other arguments are those of `states`.
        """
        return self._decoded(target, memory, source, seed, training, skip_padding)[0]

    def _decoded(
        self,
        target: Tensor,
        memory: Tensor,
        source: Tensor,
        seed: Tensor | None,
        training: bool | None,
        skip_padding: bool,
    ) -> tuple[Tensor, Tensor]:
        """The hidden states, and the balance loss of each sentence."""
        x = self.target_dropout(self._embedded_targets(target), seed=fold_in(seed, 0), training=training)
        others = _of_rows(target, skip_padding, training)
        masks = self._decoder_masks(target, source)
        return self.decoder.with_balance_loss(x, memory, *masks, seed=fold_in(seed, 1), **others)

    def logits_and_attention(self, inputs: dict[str, Tensor]) -> tuple[Tensor, Attentions]:
        """The call's result without dropout, and the three kinds of attention of section 3.2.3; see `AttentionViews`.

        No weight goes to padding, but rows of padding have weights too.
        """
        source, target = inputs["source"], inputs["target"]
        memory, encoder = self.encoder.outputs_and_attention(self._embedded_sources(source), padding_mask(source))
        x, masks = self._embedded_targets(target), self._decoder_masks(target, source)
        hidden, decoder, cross = self.decoder.outputs_and_attention(x, memory, *masks)
        return self.logits(hidden), Attentions(*(ops.cast(weights, "float32") for weights in (encoder, decoder, cross)))

    def alignment_attention(self, inputs: dict[str, Tensor]) -> Tensor:
        """Attention in the last decoder layer but one, mean over heads: float32 [batch, target_len, source_len].

        That layer best tells which source token a target token comes from: row t is the pass that predicts target t.
        Layers above it are not computed.
        """
        source, target = inputs["source"], inputs["target"]
        x, masks = self._embedded_targets(target), self._decoder_masks(target, source)
        memory = self.encode(source)
        *below, layer = self.decoder.layers[: max(self.config.num_decoder_layers - 1, 1)]
        for lower in below:
            x = lower(x, memory, *masks, training=False)
        _, _, weights = layer.outputs_and_attention(x, memory, *masks)  # --> [batch, heads, target_len, source_len]
        return ops.mean(ops.cast(weights, "float32"), axis=1)

    def _embedded_sources(self, source: Tensor) -> Tensor:
        """Sources, embedded, with positions: float [batch, source_len, d_model]."""
        return self.source_positions(self.source_embedding(source))

    def _embedded_targets(self, target: Tensor) -> Tensor:
        """Targets, shifted right and embedded, with positions: float [batch, target_len, d_model]."""
        return self.target_positions(self.embedded_targets(target))

    def _decoder_masks(self, target: Tensor, source: Tensor) -> tuple[Tensor | None, Tensor]:
        """The masks of the decoder's self-attention and of its attention to the memory."""
        # Padding follows the tokens, so the causal mask alone hides it from them; a window is causal by itself.
        is_causal = self.config.attention_window
        return None if is_causal else causal_mask(ops.shape(target)[1]), padding_mask(source)

    def begin(self, source: Tensor, memory: Tensor, beam_size: int, *, wanted: frozenset[str] = frozenset()) -> Search:
        """Prepares a search; see `StepModel.begin`.

        `COVERAGE` sums the last layer's attention to the source, mean over heads; `BFLOAT16` multiplies with the
        weights in bfloat16.
        """
        dtype = BFLOAT16 if BFLOAT16 in wanted else self.compute_dtype
        decoder, window = DecoderStep(self.decoder, dtype, beam_size), self.config.attention_window
        output_matrix = self.output_embedding.output_matrix(dtype)  # --> [d_model, vocab]

        def step(token_ids: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
            x = self.target_embedding(token_ids[:, None])  # --> [batch * beam, 1, d_model]
            x = ops.squeeze(self.target_positions(x, start=cache.position), 1)  # --> [batch * beam, d_model]
            entries = cache.per_hypothesis.with_newest()
            x, past, attention = decoder(
                x, DecoderCache(cache.per_sentence, *cache.source), entries.bias(self.compute_dtype)
            )
            coverage = cache.coverage
            if COVERAGE in wanted:
                coverage += ops.mean(ops.cast(attention, "float32"), axis=1)  # --> [batch, beam, source_len]
            logits = ops.cast(
                kernels.linear(x, output_matrix, self.output_head.bias), "float32"
            )  # --> [batch * beam, vocab]
            return logits, Cache(cache.position + 1, entries.newest(window), past, cache.source, coverage)

        past, *projected = decoder.begin(memory, padding_mask(source))
        entries = OwnEntries.none(ops.shape(memory)[0], beam_size)
        coverage = first_coverage(source if COVERAGE in wanted else source[:, :0], beam_size)
        return Search(step, Cache(ops.zeros((), "int32"), entries, past, tuple(projected), coverage))

    def _positions(self, name: str) -> keras.layers.Layer:
        if self.config.position_encoding == "learned":
            return LearnedPositions(self.config.max_positions, name=name, dtype=self.dtype_policy)
        layout = "interleaved" if self.config.position_encoding == "sinusoidal" else "halves"
        return SinusoidalPositions(layout, name=name, dtype=self.dtype_policy)


def _of_rows(token_ids: Tensor, skip_padding: bool, training: bool | None) -> dict[str, Any]:
    """What a stack is told of its rows, and whether it trains, unless that is for Keras to say."""
    mode = {} if training is None else {"training": training}
    rows = token_rows(token_ids) if skip_padding else None
    return {"token_mask": ops.not_equal(token_ids, 0), "token_rows": rows, **mode}
