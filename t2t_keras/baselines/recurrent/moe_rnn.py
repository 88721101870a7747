"""A recurrent model with mixtures of experts: MoE in the paper's Table 2, by Shazeer et al."""

from typing import Any

import keras
from keras import ops

from t2t_keras.baselines.recurrent.moe_rnn_config import MoERNNConfig
from t2t_keras.baselines.recurrent.recurrent import LSTM, AttentiveLSTM, LSTMState, LSTMStep
from t2t_keras.baselines.recurrent.rnn_attention import RecurrentMemory
from t2t_keras.kernels.contexts import ProductDtype
from t2t_keras.layers import Dropout, MixtureOfExperts, token_rows
from t2t_keras.layers.collectors import AuxiliaryLosses
from t2t_keras.layers.dropout import fold_in
from t2t_keras.layers.trainable_parts import part_arguments
from t2t_keras.models.contract import ATTENTION, BFLOAT16, COVERAGE, Attentions, Cache, Search, States, initial_coverage
from t2t_keras.models.encoder_decoder import EncoderDecoder
from t2t_keras.tensor import Tensor


@keras.saving.register_keras_serializable(package="t2t_keras")
class MoERNN(EncoderDecoder):
    """Stacks of LSTM layers with a mixture of experts in each, and attention to the encoder's outputs.

    The inputs and outputs of all layers have the width d_model, and all layers have residual connections:
    x + Dropout(LSTM(x)) and x + Dropout(sigmoid(MixtureOfExperts(x))). The encoder's first two layers read the
    embeddings in opposite directions, and both of their outputs are added to the embeddings; the experts follow. The
    decoder's first layer attends to the memory, and is the only one that reads the context; the experts follow. See
    `EncoderDecoder` for the call.

    Args:
        config: sizes and choices.

    Reference: Shazeer et al., "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer", 2017,
    appendix E.
    """

    capabilities = frozenset({ATTENTION, COVERAGE, BFLOAT16})
    config_class = MoERNNConfig

    def __init__(self, config: MoERNNConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        shared, units, width = part_arguments(self), config.num_units, config.d_model

        def layer(name: str, reverse: bool = False) -> LSTM:
            return LSTM(units, reverse, width, name=name, **shared)

        self.forward_layer = layer("encoder_1")
        self.backward_layer = layer("encoder_2", reverse=True)
        self.encoder_layers = [layer(f"encoder_{number}") for number in range(3, config.num_encoder_layers + 1)]
        self.bottom = AttentiveLSTM(
            units, config.d_attention, width, score="multiplicative", name="decoder_1", **shared
        )
        self.decoder_layers = [layer(f"decoder_{number}") for number in range(2, config.num_decoder_layers + 1)]
        self.encoder_experts, self.decoder_experts = self._experts("encoder_experts"), self._experts("decoder_experts")
        self.dropout = Dropout(config.dropout_rate, name="dropout", **shared)

    def _experts(self, name: str) -> MixtureOfExperts | None:
        config = self.config
        if not config.num_experts:
            return None
        sizes = config.num_experts, config.experts_per_token, config.d_expert
        return MixtureOfExperts(*sizes, config.gate_noise, config.balance_weight, name=name, **part_arguments(self))

    def build_layers(self) -> None:
        states = (None, None, self.config.d_model)
        self.bottom.build(states, states)
        layers = [self.forward_layer, self.backward_layer, *self.encoder_layers, *self.decoder_layers]
        for layer in (*layers, self.encoder_experts, self.decoder_experts):
            if layer is not None:
                layer.build(states)

    def states(
        self,
        inputs: dict[str, Tensor],
        *,
        seed: Tensor | None = None,
        training: bool | None = False,
        skip_padding: bool = False,
    ) -> States:
        """Returns the decoder's outputs, and the experts' balance losses; see `ScoringModel`.

        With `skip_padding`, the experts do not compute padding.
        """
        source, target = inputs["source"], inputs["target"]
        with AuxiliaryLosses(ops.not_equal(source, 0)) as source_losses:
            memory = self.encode(source, fold_in(seed, 0), training, skip_padding)
        x, _ = self._attend(inputs, memory, fold_in(seed, 1), training)
        with AuxiliaryLosses(ops.not_equal(target, 0)) as target_losses:
            hidden = self._upper_outputs(x, target, fold_in(seed, 2), training, skip_padding)
        tokens = ops.cast(ops.count_nonzero(target, axis=1), "float32")  # --> [batch]
        return States(hidden, ops.sum(tokens * (source_losses.total() + target_losses.total())))

    def encode(
        self, source: Tensor, seed: Tensor | None = None, training: bool | None = False, skip_padding: bool = False
    ) -> Tensor:
        """Returns the memory of a source, int [batch, source_len]: float [batch, source_len, d_model]."""
        self.ensure_built()
        is_token = ops.not_equal(source, 0)
        embedded = self.dropout(self.source_embedding(source), seed=fold_in(seed, 0), training=training)
        x = embedded
        for number, layer in enumerate((self.forward_layer, self.backward_layer), start=1):
            x = x + self.dropout(layer(embedded, is_token), seed=fold_in(seed, number), training=training)
        x = self._add_experts(self.encoder_experts, x, source, fold_in(seed, 3), training, skip_padding)
        for number, layer in enumerate(self.encoder_layers, start=4):
            x = x + self.dropout(layer(x, is_token), seed=fold_in(seed, number), training=training)
        return x

    def _attend(
        self, inputs: dict[str, Tensor], memory: Tensor, seed: Tensor | None, training: bool | None
    ) -> tuple[Tensor, Tensor]:
        """Returns the outputs of the decoder's first layer with and without the residual connection.

        Both are float [batch, target_len, d_model].
        """
        x = self.dropout(self.embed_targets(inputs["target"]), seed=fold_in(seed, 0), training=training)
        hidden, _ = self.bottom(x, memory, self.source_bias(inputs["source"]))
        return x + self.dropout(hidden, seed=fold_in(seed, 1), training=training), hidden

    def _upper_outputs(
        self,
        x: Tensor,
        target: Tensor,
        seed: Tensor | None = None,
        training: bool | None = False,
        skip_padding: bool = False,
    ) -> Tensor:
        """Returns the decoder's outputs, given the outputs of its first layer."""
        x = self._add_experts(self.decoder_experts, x, target, fold_in(seed, 0), training, skip_padding)
        for number, layer in enumerate(self.decoder_layers, start=1):
            x = x + self.dropout(layer(x), seed=fold_in(seed, number), training=training)
        return x

    def _add_experts(
        self,
        experts: MixtureOfExperts | None,
        x: Tensor,
        token_ids: Tensor,
        seed: Tensor | None,
        training: bool | None,
        skip_padding: bool,
    ) -> Tensor:
        """Returns x + Dropout(sigmoid(MixtureOfExperts(x))), or x if there are no experts."""
        if experts is None:
            return x
        rows = token_rows(token_ids) if skip_padding else None
        mode = {} if training is None else {"training": training}
        outputs = experts(x, seed=fold_in(seed, 0), token_rows=rows, **mode)
        return x + self.dropout(ops.sigmoid(outputs), seed=fold_in(seed, 1), training=training)

    def logits_and_attention(self, inputs: dict[str, Tensor]) -> tuple[Tensor, Attentions]:
        memory = self.encode(inputs["source"])
        x, bottom = self._attend(inputs, memory, None, False)
        hidden = self._upper_outputs(x, inputs["target"])
        cross = self.bottom.attended(bottom, memory, self.source_bias(inputs["source"]))
        cross = cross[:, None, None]  # --> [batch, 1 layer, 1 head, target_len, source_len]
        return self.logits(hidden), Attentions.cross_only(cross)

    def alignment_attention(self, inputs: dict[str, Tensor]) -> Tensor:
        memory = self.encode(inputs["source"])
        _, bottom = self._attend(inputs, memory, None, False)
        return self.bottom.attended(bottom, memory, self.source_bias(inputs["source"]))

    def start_search(
        self, source: Tensor, memory: Tensor, beam_size: int, *, capabilities: frozenset[str] = frozenset()
    ) -> Search:
        dtype, logits_of = self.step_products(capabilities)
        bottom, *upper = [LSTMStep(layer, dtype) for layer in (self.bottom.lstm, *self.decoder_layers)]

        def step(token_ids: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
            (first, *upper_states), memories = cache.per_hypothesis, cache.source
            batch, d_model = ops.shape(first.hidden)[0], self.config.d_model
            x = ops.reshape(self.target_embedding(token_ids), (batch, beam_size, d_model))  # --> [batch, beam, d_model]
            context, attention = self.bottom.attention(first.hidden, *memories)  # --> [batch, beam, d_model]
            new_states = [bottom(bottom.gates(ops.concatenate([x, context], axis=-1)), first)]
            x = x + new_states[0].hidden
            if self.decoder_experts is not None:
                rows = ops.arange(batch * beam_size, dtype="int32")  # all rows; allows data-dependent shapes
                with ProductDtype(dtype):
                    x = x + ops.sigmoid(self.decoder_experts(x, token_rows=rows, training=False))
            for lstm, state in zip(upper, upper_states, strict=True):
                new_states.append(lstm(lstm.gates(x), state))
                x = x + new_states[-1].hidden
            hidden = ops.reshape(x, (batch * beam_size, d_model))  # --> [batch * beam, d_model]
            coverage = cache.coverage
            if COVERAGE in capabilities:
                coverage += ops.cast(attention, "float32")  # --> [batch, beam, source_len]
            return logits_of(hidden), Cache(
                cache.position + 1, tuple(new_states), cache.per_sentence, memories, coverage
            )

        rows = (ops.shape(source)[0], beam_size)
        zeros = LSTMState(
            ops.zeros((*rows, self.config.d_model), self.compute_dtype),
            ops.zeros((*rows, self.config.num_units), "float32"),
        )
        memories = RecurrentMemory(memory, self.bottom.attention.keys(memory), self.source_bias(source))
        coverage = initial_coverage(source, beam_size, capabilities)
        states = (zeros,) * (1 + len(upper))
        return Search(step, Cache(ops.zeros((), "int32"), states, (), memories, coverage))
