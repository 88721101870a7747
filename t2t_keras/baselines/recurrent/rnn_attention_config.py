"""The settings of a recurrent model with attention, and what they say of its size and cost."""

import dataclasses
from typing import ClassVar, Literal

from t2t_keras.config.checks import check_positive, check_rate
from t2t_keras.config.model_config import Activations, ModelConfig, register_config
from t2t_keras.errors import InputError


@register_config
@dataclasses.dataclass(frozen=True)
class RNNAttentionConfig(ModelConfig):
    """Long short-term memories with additive attention; the defaults are GNMT's sizes (Wu et al., 2016).

    Attributes:
        num_encoder_layers: layers of the encoder, or of each of its columns.
        num_decoder_layers: layers of the decoder, of which the first one attends.
        num_units: width of a layer's hidden state, in each direction.
        d_attention: width of the attention's hidden layer.
        d_memory: width that the encoder's output is projected to; None means that it is not.
        encoder: "bidirectional_first": the first layer reads in both directions, those above forwards (GNMT);
            "alternating_columns": two columns, each of whose layers read in turns forwards and backwards (Deep-Att).
        connections: how a layer is reached from below. "residual": a layer's input is added to its output (GNMT);
            "fast_forward": a layer also reads half of what the layer below added to its gates (Deep-Att).
        readout: what the projection to the vocabulary reads: the "state", which is what the top layer hands on (GNMT),
            or "state_context", that and the context beside each other through one linear layer (Bahdanau et al., 2015).
        first_residual: number of the first layer, counted from 1, with a residual connection, if connections are
            residual; at least 3.
        dropout_rate: dropout on the input of every layer, the projection to the vocabulary included.
        tie_embeddings: one matrix for source, target and the pre-softmax projection.
    """

    family: ClassVar[str] = "rnn_attention"

    d_model: int = 1024
    num_encoder_layers: int = 8
    num_decoder_layers: int = 8
    num_units: int = 1024
    d_attention: int = 1024
    d_memory: int | None = None
    encoder: Literal["bidirectional_first", "alternating_columns"] = "bidirectional_first"
    connections: Literal["residual", "fast_forward"] = "residual"
    readout: Literal["state", "state_context"] = "state"
    first_residual: int = 3
    dropout_rate: float = 0.2
    tie_embeddings: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "num_encoder_layers", "num_decoder_layers", "num_units", "d_attention", "d_memory")
        check_rate(self, "dropout_rate")
        if self.first_residual < 3:  # the second layer's input is of both directions, twice as wide as its output
            raise InputError(f"model.first_residual must be at least 3, got {self.first_residual}")

    def parameter_counts(self) -> dict[str, int]:
        """Those of "embedding" (token matrices, pre-softmax projection and its bias), "encoder" and "decoder"."""
        columns, above, decoder = self.layer_inputs()
        lstm_biases = 4 * self.num_units
        encoder_layers = sum(map(len, columns)) + len(above)
        attention = self._attention_matrices() + 2 * self.d_attention  # the bias and v
        return {
            "embedding": self.token_rows(tied=self.tie_embeddings) * self.d_model + self.vocab_size,
            "encoder": self._encoder_matrices() + encoder_layers * lstm_biases,
            "decoder": self._decoder_matrices() + len(decoder) * lstm_biases + attention,
        }

    def training_flops(self, length: int) -> dict[str, int]:
        """Those of "matrices" and of "attention": tanh aside, the products with v and with the memory."""
        matrices = self._encoder_matrices() + self._decoder_matrices() + self._attention_matrices()
        return {
            "matrices": 6 * (matrices + self.vocab_size * self.d_model),
            "attention": 6 * length * (self.d_attention + self.memory_width()),
        }

    def loop_iterations(self, length: int) -> int:
        """Each layer reads its sequence once forward, and once backward for the gradient."""
        columns, above, decoder = self.layer_inputs()
        return 2 * length * (sum(map(len, columns)) + len(above) + len(decoder))

    def hidden_scores(self, length: int) -> int:
        return length * self.d_attention

    def kept_activations(self, length: int) -> Activations:
        """Gates, cells, outputs and inputs of every layer; the attention's hidden layer and weights."""
        columns, above, decoder = self.layer_inputs()
        inputs = sum(map(sum, columns)) + sum(above) + sum(decoder)
        layers = sum(map(len, columns)) + len(above) + len(decoder)
        attention = length * (2 * self.d_attention + 2) + self.memory_width()
        lstms = layers * self.num_units  # gates and cells are in float32
        return Activations(computed=2 * lstms + inputs + attention, float32=5 * lstms)

    def layer_inputs(self) -> tuple[list[list[int]], list[int], list[int]]:
        """The widths of the inputs of each layer: of the encoder's two columns, of its layers above, of the decoder."""
        passed = self.passed_width()
        length = self.num_encoder_layers if self.encoder == "alternating_columns" else 1
        column = [self.d_model, *[passed] * (length - 1)]
        above = [2 * passed, *[passed] * (self.num_encoder_layers - 2)][: self.num_encoder_layers - length]
        context = self.memory_width() if self.connections == "residual" else 0
        decoder = [passed + context] * (self.num_decoder_layers - 1)
        return [column, column], above, [self.d_model + self.memory_width(), *decoder]

    def passed_width(self) -> int:
        """Width of what a layer hands to the one above: its outputs and, with "fast_forward", half of its gates."""
        return 3 * self.num_units if self.connections == "fast_forward" else self.num_units

    def readout_width(self) -> int:
        """Width of what the readout, or without one the projection to the vocabulary, reads."""
        return self.passed_width() + (self.memory_width() if self.readout == "state_context" else 0)

    def has_readout(self) -> bool:
        """Whether a linear layer leads to the width of the embeddings: what is read need not have another width."""
        return self.readout == "state_context" or self.passed_width() != self.d_model

    def memory_width(self) -> int:
        return self.d_memory or self.encoded_width()

    def encoded_width(self) -> int:
        """Width of the encoder's output, before the projection to `d_memory`."""
        both = self.encoder == "alternating_columns" or self.num_encoder_layers == 1
        return (2 if both else 1) * self.passed_width()

    def _encoder_matrices(self) -> int:
        columns, above, _ = self.layer_inputs()
        projection = self.encoded_width() * self.d_memory if self.d_memory else 0
        return sum(map(self._lstm_matrices, columns)) + self._lstm_matrices(above) + projection

    def _decoder_matrices(self) -> int:
        """Those of the layers and of the readout."""
        readout = self.readout_width() * self.d_model if self.has_readout() else 0
        return self._lstm_matrices(self.layer_inputs()[2]) + readout

    def _lstm_matrices(self, inputs: list[int]) -> int:
        return sum(4 * self.num_units * (width + self.num_units) for width in inputs)

    def _attention_matrices(self) -> int:
        return self.d_attention * (self.num_units + self.memory_width())
