"""The settings of a recurrent model with attention, and the size and cost that follow from them."""

import dataclasses
from typing import Annotated, ClassVar, Literal

from t2t_keras.config.model_config import Activations, ModelConfig, register_config
from t2t_keras.values import PositiveInt, Rate, at_least


@register_config
@dataclasses.dataclass(frozen=True)
class RNNAttentionConfig(ModelConfig):
    """LSTM layers with additive attention; the defaults are GNMT's sizes (Wu et al., 2016).

    Attributes:
        num_encoder_layers: number of layers of the encoder, or of each of its columns.
        num_decoder_layers: number of layers of the decoder, the first of which attends to the memory.
        num_units: width of a layer's hidden state, in each direction.
        d_attention: width of the attention's hidden layer.
        d_memory: width to which the encoder's output is projected; None means no projection.
        encoder: "bidirectional_first": the first layer reads in both directions, and the layers above read forwards
            (GNMT); "alternating_columns": two columns whose layers read forwards and backwards alternately (Deep-Att).
        connections: how layers are connected. "residual": a layer's input is added to its output (GNMT);
            "fast_forward": a layer also reads half of the contributions of the inputs to the gates of the layer below
            (Deep-Att).
        readout: input of the projection to the vocabulary. "state": the outputs of the top layer (GNMT);
            "state_context": these outputs and the context, through one linear layer (Bahdanau et al., 2015).
        first_residual: number of the first layer with a residual connection, counted from 1 and at least 3; has an
            effect only with residual connections.
        dropout_rate: dropout on the inputs of every layer, and of the projection to the vocabulary or its readout.
            There is no dropout on the context and on forwarded gates.
        tie_embeddings: whether source, target and pre-softmax projection share one matrix.
    """

    family: ClassVar[str] = "rnn_attention"

    d_model: PositiveInt = 1024
    num_encoder_layers: PositiveInt = 8
    num_decoder_layers: PositiveInt = 8
    num_units: PositiveInt = 1024
    d_attention: PositiveInt = 1024
    d_memory: PositiveInt | None = None
    encoder: Literal["bidirectional_first", "alternating_columns"] = "bidirectional_first"
    connections: Literal["residual", "fast_forward"] = "residual"
    readout: Literal["state", "state_context"] = "state"
    # The second layer reads both directions, twice as wide as its output.
    first_residual: Annotated[int, at_least(3)] = 3
    dropout_rate: Rate = 0.2
    tie_embeddings: bool = False

    def parameter_counts(self) -> dict[str, int]:
        """Counts "embedding" (token matrices, pre-softmax projection and its bias), "encoder" and "decoder"."""
        columns, encoder, decoder = self.layer_inputs()
        lstm_biases = 4 * self.num_units
        encoder_layers = sum(map(len, columns)) + len(encoder)
        attention = self._attention_matrices() + 2 * self.d_attention  # the bias and v
        return {
            "embedding": self.token_rows(tied=self.tie_embeddings) * self.d_model + self.vocab_size,
            "encoder": self._encoder_matrices() + encoder_layers * lstm_biases,
            "decoder": self._decoder_matrices() + len(decoder) * lstm_biases + attention,
        }

    def training_flops(self, length: int) -> dict[str, int]:
        """Counts "matrices" and "attention": the products with v and with the memory, without tanh."""
        matrices = self._encoder_matrices() + self._decoder_matrices() + self._attention_matrices()
        return {
            "matrices": 6 * (matrices + self.vocab_size * self.d_model),
            "attention": 6 * length * (self.d_attention + self.memory_width()),
        }

    def loop_iterations(self, length: int) -> int:
        """Counts one iteration per layer and position in the forward pass, and one in the backward pass."""
        columns, encoder, decoder = self.layer_inputs()
        return 2 * length * (sum(map(len, columns)) + len(encoder) + len(decoder))

    def hidden_scores(self, length: int) -> int:
        return length * self.d_attention

    def kept_activations(self, length: int) -> Activations:
        """Counts gates, cells, outputs and inputs of every layer, and the attention's hidden layer and weights."""
        columns, encoder, decoder = self.layer_inputs()
        inputs = sum(map(sum, columns)) + sum(encoder) + sum(decoder)
        layers = sum(map(len, columns)) + len(encoder) + len(decoder)
        attention = length * (2 * self.d_attention + 2) + self.memory_width()
        lstms = layers * self.num_units  # gates and cells are in float32
        return Activations(computed=2 * lstms + inputs + attention, float32=5 * lstms)

    def layer_inputs(self) -> tuple[list[list[int]], list[int], list[int]]:
        """Returns the input widths of the layers in the encoder's two columns, above these, and in the decoder."""
        width = self.passed_width()
        length = self.num_encoder_layers if self.encoder == "alternating_columns" else 1
        column = [self.d_model, *[width] * (length - 1)]
        encoder = [2 * width, *[width] * (self.num_encoder_layers - 2)][: self.num_encoder_layers - length]
        context = self.memory_width() if self.connections == "residual" else 0
        decoder = [width + context] * (self.num_decoder_layers - 1)
        return [column, column], encoder, [self.d_model + self.memory_width(), *decoder]

    def passed_width(self) -> int:
        """Returns the width of a layer's outputs: hidden states and, with "fast_forward", half of the gates."""
        return 3 * self.num_units if self.connections == "fast_forward" else self.num_units

    def readout_width(self) -> int:
        """Returns the input width of the readout, or of the projection to the vocabulary if there is no readout."""
        return self.passed_width() + (self.memory_width() if self.readout == "state_context" else 0)

    def has_readout(self) -> bool:
        """Whether a linear layer precedes the projection to the vocabulary, as it must if the widths differ."""
        return self.readout == "state_context" or self.passed_width() != self.d_model

    def memory_width(self) -> int:
        return self.d_memory or self.encoded_width()

    def encoded_width(self) -> int:
        """Returns the width of the encoder's output, before the projection to `d_memory`."""
        both = self.encoder == "alternating_columns" or self.num_encoder_layers == 1
        return (2 if both else 1) * self.passed_width()

    def _encoder_matrices(self) -> int:
        columns, encoder, _ = self.layer_inputs()
        projection = self.encoded_width() * self.d_memory if self.d_memory else 0
        return sum(map(self._lstm_matrices, columns)) + self._lstm_matrices(encoder) + projection

    def _decoder_matrices(self) -> int:
        """Counts the weights of the layers and of the readout."""
        readout = self.readout_width() * self.d_model if self.has_readout() else 0
        return self._lstm_matrices(self.layer_inputs()[2]) + readout

    def _lstm_matrices(self, inputs: list[int]) -> int:
        return sum(4 * self.num_units * (width + self.num_units) for width in inputs)

    def _attention_matrices(self) -> int:
        return self.d_attention * (self.num_units + self.memory_width())
