"""A recurrent model with attention: the system of Wu et al. that the paper's Table 2 calls GNMT."""

from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_keras.config import RNNAttentionConfig
from t2t_keras.layers import Dropout, kernels
from t2t_keras.layers.attention.scores import mask_bias
from t2t_keras.layers.dropout import fold_in
from t2t_keras.layers.recurrent import LSTM, AttentiveLSTM, LSTMState
from t2t_keras.layers.stepping.recurrent_step import LSTMStep
from t2t_keras.models.contract import ATTENTION, BFLOAT16, COVERAGE, Cache, Search, States, first_coverage
from t2t_keras.models.encoder_decoder import EncoderDecoder

Tensor = Any


class RecurrentMemory(NamedTuple):
    """What the steps read of a source.

    Attributes:
        memory: float [batch, source_len, d_memory].
        keys: float [batch, source_len, d_attention].
        bias: a `mask_bias`, [batch, 1, source_len].
    """

    memory: Tensor
    keys: Tensor
    bias: Tensor


@keras.saving.register_keras_serializable(package="t2t_keras")
class RNNAttention(EncoderDecoder):
    """Stacks of long short-term memories, the decoder's with additive attention to the encoder's outputs.

    The encoder's first layer reads in both directions. The decoder's first layer attends with its last hidden
    state, and every layer above it reads the same context beside the outputs of the layer below. From
    `config.first_residual` on, a layer's input, without the context, is added to its output. See `EncoderDecoder` for
    the call.

    Args:
        config: sizes and choices.

    Reference:
        Wu et al., "Google's Neural Machine Translation System", 2016.
    """

    offers = frozenset({ATTENTION, COVERAGE, BFLOAT16})

    config_class = RNNAttentionConfig

    def __init__(self, config: RNNAttentionConfig, **kwargs: Any) -> None:
        super().__init__(config, output_bias=True, **kwargs)
        dtype = self.dtype_policy
        self.forward = LSTM(config.num_units, name="encoder_forward", dtype=dtype)
        self.backward = LSTM(config.num_units, reverse=True, name="encoder_backward", dtype=dtype)
        above, decoder = config.layer_inputs()
        self.encoder_layers = [
            LSTM(config.num_units, name=f"encoder_{number}", dtype=dtype) for number in range(2, 2 + len(above))
        ]
        self.bottom = AttentiveLSTM(config.num_units, config.d_attention, name="decoder_1", dtype=dtype)
        self.decoder_layers = [
            LSTM(config.num_units, name=f"decoder_{number}", dtype=dtype) for number in range(2, 1 + len(decoder))
        ]
        self.readout = None
        if config.num_units != config.d_model:
            self.readout = keras.layers.Dense(config.d_model, use_bias=False, name="readout", dtype=dtype)
        self.dropout = Dropout(config.dropout_rate, name="dropout", dtype=dtype)

    def build(self, input_shape: Any = None) -> None:
        super().build(input_shape)
        config = self.config
        above, decoder = config.layer_inputs()
        self.forward.build((None, None, config.d_model))
        self.backward.build((None, None, config.d_model))
        for layer, width in zip(self.encoder_layers, above, strict=True):
            layer.build((None, None, width))
        self.bottom.build((None, None, config.d_model), (None, None, config.d_memory()))
        for layer, width in zip(self.decoder_layers, decoder[1:], strict=True):
            layer.build((None, None, width))
        if self.readout is not None:
            self.readout.build((None, None, config.num_units))

    def states(
        self,
        inputs: dict[str, Tensor],
        *,
        seed: Tensor | None = None,
        training: bool | None = False,
        skip_padding: bool = False,
    ) -> States:
        """The decoder's outputs before the projection to the vocabulary; see `ScoringModel`."""
        memory = self.encode(inputs["source"], fold_in(seed, 0), training)
        hidden, _ = self._decoded(inputs["target"], memory, inputs["source"], fold_in(seed, 1), training)
        return States(self._read(hidden), ops.zeros(()))

    def encode(self, source: Tensor, seed: Tensor | None = None, training: bool | None = False) -> Tensor:
        """The memory of a source, int [batch, source_len]: float [batch, source_len, d_memory]."""
        is_token = ops.not_equal(source, 0)
        x = self.dropout(self.source_embedding(source), seed=fold_in(seed, 0), training=training)
        x = ops.concatenate([self.forward(x, is_token), self.backward(x, is_token)], axis=-1)
        for number, layer in enumerate(self.encoder_layers, start=2):
            dropped = self.dropout(x, seed=fold_in(seed, number), training=training)
            x = self._added(number, x, layer(dropped, is_token))  # --> [batch, source_len, num_units]
        return x

    def _decoded(
        self, target: Tensor, memory: Tensor, source: Tensor, seed: Tensor | None, training: bool | None
    ) -> tuple[Tensor, Tensor]:
        """The top layer's outputs and the bottom layer's, float [batch, target_len, num_units] each."""
        x = self.dropout(self.embedded_targets(target), seed=fold_in(seed, 0), training=training)
        bottom, context = self.bottom(x, memory, self._bias(source))
        x = bottom
        for number, layer in enumerate(self.decoder_layers, start=2):
            dropped = self.dropout(x, seed=fold_in(seed, number), training=training)
            x = self._added(number, x, layer(ops.concatenate([dropped, context], axis=-1)))
        return x, bottom

    def logits_and_cross_attention(self, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The call's result without dropout, and attention to the source; see `AttentionViews`."""
        source, memory = inputs["source"], self.encode(inputs["source"])
        hidden, bottom = self._decoded(inputs["target"], memory, source, None, False)
        queries = ops.pad(bottom, ((0, 0), (1, 0), (0, 0)))[:, :-1]  # the state before each position asks
        _, weights = self.bottom.attention(queries, memory, self.bottom.attention.keys(memory), self._bias(source))
        # --> [batch, layers = 1, heads = 1, target_len, source_len]
        return self.logits(self._read(hidden)), ops.cast(weights, "float32")[:, None, None]

    def alignment_attention(self, inputs: dict[str, Tensor]) -> Tensor:
        """The attention of `logits_and_cross_attention`, float32 [batch, target_len, source_len]."""
        return self.logits_and_cross_attention(inputs)[1][:, 0, 0]

    def begin(self, source: Tensor, memory: Tensor, beam_size: int, *, wanted: frozenset[str] = frozenset()) -> Search:
        """Prepares a search; see `StepModel`."""
        dtype = BFLOAT16 if BFLOAT16 in wanted else self.compute_dtype
        steps = [LSTMStep(layer, dtype) for layer in (self.bottom.lstm, *self.decoder_layers)]
        output_matrix = self.output_head.output_matrix(dtype)  # --> [d_model, vocab]

        def step(token_ids: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
            states, recalled = cache.per_hypothesis, cache.source
            batch = ops.shape(states[0].hidden)[0]
            x = ops.reshape(self.target_embedding(token_ids), (batch, beam_size, self.config.d_model))
            context, attention = self.bottom.attention(states[0].hidden, *recalled)  # --> [batch, beam, d_memory]
            after = []
            for number, (lstm, state) in enumerate(zip(steps, states, strict=True), start=1):
                after.append(lstm(ops.concatenate([x, context], axis=-1), state))
                x = self._added(number, x, after[-1].hidden)  # --> [batch, beam, num_units]
            hidden = ops.reshape(self._read(x), (batch * beam_size, self.config.d_model))
            logits = ops.cast(kernels.linear(hidden, output_matrix, self.output_head.bias), "float32")
            coverage = cache.coverage
            if COVERAGE in wanted:
                coverage += ops.cast(attention, "float32")  # --> [batch, beam, source_len]
            return logits, Cache(cache.position + 1, tuple(after), cache.per_sentence, recalled, coverage)

        nothing = ops.zeros((ops.shape(source)[0], beam_size, self.config.num_units), self.compute_dtype)
        states = tuple(LSTMState(nothing, nothing) for _ in steps)
        recalled = RecurrentMemory(memory, self.bottom.attention.keys(memory), self._bias(source))
        coverage = first_coverage(source if COVERAGE in wanted else source[:, :0], beam_size)
        return Search(step, Cache(ops.zeros((), "int32"), states, (), recalled, coverage))

    def _added(self, number: int, inputs: Tensor, outputs: Tensor) -> Tensor:
        """A layer's outputs with its inputs, if the layer has a residual connection."""
        return inputs + outputs if number >= self.config.first_residual else outputs

    def _read(self, hidden: Tensor) -> Tensor:
        """The top layer's outputs in the width of the embeddings."""
        return hidden if self.readout is None else self.readout(hidden)

    def _bias(self, source: Tensor) -> Tensor:
        """What hides padding: [batch, 1, source_len]."""
        return mask_bias(ops.not_equal(source, 0)[:, None], self.compute_dtype)
