"""Recurrent models with attention: GNMT and Deep-Att in the paper's Table 2."""

from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_keras.baselines.recurrent.recurrent import LSTM, AttentiveLSTM, LSTMState, LSTMStep
from t2t_keras.baselines.recurrent.rnn_attention_config import RNNAttentionConfig
from t2t_keras.layers import Dropout
from t2t_keras.layers.dropout import fold_in
from t2t_keras.layers.trainable_parts import part_arguments
from t2t_keras.models.contract import ATTENTION, BFLOAT16, COVERAGE, Attentions, Cache, Search, States, initial_coverage
from t2t_keras.models.encoder_decoder import EncoderDecoder
from t2t_keras.tensor import Tensor


class RecurrentMemory(NamedTuple):
    """The part of a search's cache that depends only on the source.

    Attributes:
        memory: float [batch, source_len, memory_width].
        keys: float [batch, source_len, d_attention], the attention's `keys` of the memory.
        bias: a `mask_bias`, [batch, 1, source_len].
    """

    memory: Tensor
    keys: Tensor
    bias: Tensor


class LayerOutputs(NamedTuple):
    """The outputs of a layer, which the layer above reads.

    Attributes:
        hidden: float [..., units], the hidden states, plus the layer's inputs if it has a residual connection.
        forwarded: float [..., 2 units], half of the contributions of the layer's inputs to its gates;
            None without "fast_forward".
    """

    hidden: Tensor
    forwarded: Tensor | None = None


@keras.saving.register_keras_serializable(package="t2t_keras")
class RNNAttention(EncoderDecoder):
    """Stacks of LSTM layers, with additive attention from the decoder to the encoder's outputs.

    The decoder's first layer attends with its previous hidden state. With residual connections, the layers above read
    the same context, concatenated to the outputs of the layer below. See `RNNAttentionConfig` for the kinds of
    connections and encoders, and `EncoderDecoder` for the call.

    Args:
        config: sizes and choices.

    Reference: Wu et al., "Google's Neural Machine Translation System", 2016; Zhou et al., "Deep Recurrent Models with
    Fast-Forward Connections for Neural Machine Translation", 2016.
    """

    capabilities = frozenset({ATTENTION, COVERAGE, BFLOAT16})
    config_class = RNNAttentionConfig

    def __init__(self, config: RNNAttentionConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        shared, (columns, encoder, decoder) = part_arguments(self), config.layer_inputs()

        def layer(name: str, reverse: bool = False) -> LSTM:
            return LSTM(config.num_units, reverse=reverse, name=name, **shared)

        self.columns = [
            [layer(f"encoder_{name}_{index + 1}", reverse=index % 2 == first) for index in range(len(column))]
            for name, first, column in zip(("forward", "backward"), (1, 0), columns, strict=True)
        ]
        self.encoder_layers = [layer(f"encoder_{index + 2}") for index in range(len(encoder))]
        self.memory_projection = self._projection("memory_projection", config.d_memory) if config.d_memory else None
        self.bottom = AttentiveLSTM(config.num_units, config.d_attention, name="decoder_1", **shared)
        self.decoder_layers = [layer(f"decoder_{index + 2}") for index in range(len(decoder) - 1)]
        self.readout = self._projection("readout", config.d_model) if config.has_readout() else None
        self.dropout = Dropout(config.dropout_rate, name="dropout", **shared)

    def build_layers(self) -> None:
        config = self.config
        columns, encoder, decoder = config.layer_inputs()
        stacks = zip(
            [*self.columns, self.encoder_layers, self.decoder_layers], [*columns, encoder, decoder[1:]], strict=True
        )
        for layers, widths in stacks:
            for layer, width in zip(layers, widths, strict=True):
                layer.build((None, None, width))
        self.bottom.build((None, None, config.d_model), (None, None, config.memory_width()))
        if self.memory_projection is not None:
            self.memory_projection.build((None, None, config.encoded_width()))
        if self.readout is not None:
            self.readout.build((None, None, config.readout_width()))

    def states(
        self,
        inputs: dict[str, Tensor],
        *,
        seed: Tensor | None = None,
        training: bool | None = False,
        skip_padding: bool = False,
    ) -> States:
        memory = self.encode(inputs["source"], fold_in(seed, 0), training)
        hidden, _ = self._decode(inputs, memory, fold_in(seed, 1), training)
        return States(hidden, ops.zeros((), "float32"))

    def encode(self, source: Tensor, seed: Tensor | None = None, training: bool | None = False) -> Tensor:
        """Returns the memory of a source, int [batch, source_len]: float [batch, source_len, memory_width]."""
        self.ensure_built()
        is_token = ops.not_equal(source, 0)

        def apply_layers(layers: list[LSTM], x: LayerOutputs, first: int, seed: Tensor | None) -> LayerOutputs:
            for number, layer in enumerate(layers, start=first):
                gates = layer.gates(self._inputs(x, fold_in(seed, number), training))
                x = self._outputs(number, x, layer.recur(gates, is_token), gates)
            return x

        embedded = LayerOutputs(self.source_embedding(source))
        left, right = (apply_layers(column, embedded, 1, fold_in(seed, i)) for i, column in enumerate(self.columns))
        hidden = ops.concatenate([left.hidden, right.hidden], axis=-1)  # --> [batch, source_len, 2 units]
        forwarded = None
        if left.forwarded is not None:
            forwarded = ops.concatenate([left.forwarded, right.forwarded], axis=-1)
        top = apply_layers(self.encoder_layers, LayerOutputs(hidden, forwarded), 2, fold_in(seed, 2))
        memory = self._inputs(top)  # --> [batch, source_len, encoded_width]
        return memory if self.memory_projection is None else self.memory_projection(memory)

    def _attend(
        self, inputs: dict[str, Tensor], memory: Tensor, seed: Tensor | None, training: bool | None
    ) -> tuple[LayerOutputs, Tensor]:
        """Returns the bottom layer's outputs for whole targets, and the contexts.

        The contexts are float [batch, target_len, memory_width].
        """
        embedded = LayerOutputs(self.embed_targets(inputs["target"]))
        x = self._inputs(embedded, fold_in(seed, 1), training)
        gates = self.bottom.gates(x)
        hidden, context = self.bottom.recur(gates, memory, self.source_bias(inputs["source"]))
        if self.config.connections == "fast_forward":  # half of the gates is passed on
            half = 2 * self.config.num_units
            gates = gates[..., :half] + self.bottom.context_gates(context, half)
        return self._outputs(1, embedded, hidden, gates), context

    def _decode(
        self, inputs: dict[str, Tensor], memory: Tensor, seed: Tensor | None = None, training: bool | None = False
    ) -> tuple[Tensor, Tensor]:
        """Returns the hidden states of the decoder and of its bottom layer for whole targets.

        They are float [batch, target_len, d_model] and [batch, target_len, units].
        """
        x, context = self._attend(inputs, memory, seed, training)
        bottom = x.hidden
        for number, layer in enumerate(self.decoder_layers, start=2):
            inputs_of_layer = self._inputs(x, fold_in(seed, number), training)
            gates = layer.gates(self._add_context(number, inputs_of_layer, context))
            x = self._outputs(number, x, layer.recur(gates), gates)
        return self._read(x, context, fold_in(seed, 0), training), bottom

    def logits_and_attention(self, inputs: dict[str, Tensor]) -> tuple[Tensor, Attentions]:
        memory = self.encode(inputs["source"])
        hidden, bottom = self._decode(inputs, memory)
        cross = self.bottom.attended(bottom, memory, self.source_bias(inputs["source"]))
        cross = cross[:, None, None]  # --> [batch, 1 layer, 1 head, target_len, source_len]
        return self.logits(hidden), Attentions.cross_only(cross)

    def alignment_attention(self, inputs: dict[str, Tensor]) -> Tensor:
        memory = self.encode(inputs["source"])
        bottom, _ = self._attend(inputs, memory, None, False)
        return self.bottom.attended(bottom.hidden, memory, self.source_bias(inputs["source"]))

    def start_search(
        self, source: Tensor, memory: Tensor, beam_size: int, *, capabilities: frozenset[str] = frozenset()
    ) -> Search:
        dtype, logits_of = self.step_products(capabilities)
        steps = [LSTMStep(layer, dtype) for layer in (self.bottom.lstm, *self.decoder_layers)]

        def step(token_ids: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
            states, memories = cache.per_hypothesis, cache.source
            batch = ops.shape(states[0].hidden)[0]
            embedded = self.target_embedding(token_ids)  # --> [batch * beam, d_model]
            embedded = ops.reshape(embedded, (batch, beam_size, self.config.d_model))  # --> [batch, beam, d_model]
            context, attention = self.bottom.attention(states[0].hidden, *memories)  # --> [batch, beam, memory_width]
            x, new_states = LayerOutputs(embedded), []
            for number, (lstm, state) in enumerate(zip(steps, states, strict=True), start=1):
                gates = lstm.gates(self._add_context(number, self._inputs(x), context))
                new_states.append(lstm(gates, state))
                x = self._outputs(number, x, new_states[-1].hidden, gates)  # --> [batch, beam, units]
            hidden = self._read(x, context)  # --> [batch, beam, d_model]
            hidden = ops.reshape(hidden, (batch * beam_size, self.config.d_model))  # --> [batch * beam, d_model]
            coverage = cache.coverage
            if COVERAGE in capabilities:
                coverage += ops.cast(attention, "float32")  # --> [batch, beam, source_len]
            return logits_of(hidden), Cache(
                cache.position + 1, tuple(new_states), cache.per_sentence, memories, coverage
            )

        shape = (ops.shape(source)[0], beam_size, self.config.num_units)
        zeros = LSTMState(ops.zeros(shape, self.compute_dtype), ops.zeros(shape, "float32"))
        states = (zeros,) * len(steps)
        memories = RecurrentMemory(memory, self.bottom.attention.keys(memory), self.source_bias(source))
        coverage = initial_coverage(source, beam_size, capabilities)
        return Search(step, Cache(ops.zeros((), "int32"), states, (), memories, coverage))

    def _inputs(self, lower: LayerOutputs, seed: Tensor | None = None, training: bool | None = False) -> Tensor:
        """Returns the inputs of the layer above `lower`, with dropout on hidden states: float [..., passed_width]."""
        hidden = self.dropout(lower.hidden, seed=seed, training=training)
        return hidden if lower.forwarded is None else ops.concatenate([hidden, lower.forwarded], axis=-1)

    def _add_context(self, number: int, inputs: Tensor, context: Tensor) -> Tensor:
        """Returns a decoder layer's inputs with the context. With "fast_forward", only the first layer reads it."""
        omits_context = number > 1 and self.config.connections == "fast_forward"
        return inputs if omits_context else ops.concatenate([inputs, context], axis=-1)

    def _outputs(self, number: int, lower: LayerOutputs, hidden: Tensor, gates: Tensor) -> LayerOutputs:
        """Returns the outputs of a layer, given its hidden states and gates; they depend on `connections`."""
        if self.config.connections == "fast_forward":
            return LayerOutputs(hidden, gates[..., : 2 * self.config.num_units])
        return LayerOutputs(lower.hidden + hidden if number >= self.config.first_residual else hidden)

    def _read(
        self, top: LayerOutputs, context: Tensor, seed: Tensor | None = None, training: bool | None = False
    ) -> Tensor:
        """Returns the inputs of the projection to the vocabulary, as wide as the embeddings, with dropout."""
        outputs = self._inputs(top, seed, training)
        if self.config.readout == "state_context":
            outputs = ops.concatenate([outputs, context], axis=-1)
        return outputs if self.readout is None else self.readout(outputs)

    def _projection(self, name: str, width: int) -> keras.layers.Dense:
        return keras.layers.Dense(width, use_bias=False, name=name, **part_arguments(self))
