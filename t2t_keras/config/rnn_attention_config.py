"""The settings of a recurrent model with attention, and what they say of its size and cost."""

import dataclasses
from typing import ClassVar

from t2t_keras.config.checks import check_positive, check_rate
from t2t_keras.config.model_config import Activations, ModelConfig, register_config
from t2t_keras.errors import InputError


@register_config
@dataclasses.dataclass(frozen=True)
class RNNAttentionConfig(ModelConfig):
    """Long short-term memories with additive attention (Wu et al., 2016); the defaults are that paper's sizes.

    Attributes:
        num_encoder_layers: layers of the encoder, of which the first one reads in both directions.
        num_decoder_layers: layers of the decoder, of which the first one attends.
        num_units: width of a layer's hidden state, in each direction.
        d_attention: width of the attention's hidden layer.
        first_residual: number of the first layer, counted from 1, whose input is added to its output; at least 3.
        dropout_rate: dropout on the input of every layer.
        tie_embeddings: one matrix for source, target and the pre-softmax projection.
    """

    family: ClassVar[str] = "rnn_attention"

    d_model: int = 1024
    num_encoder_layers: int = 8
    num_decoder_layers: int = 8
    num_units: int = 1024
    d_attention: int = 1024
    first_residual: int = 3
    dropout_rate: float = 0.2
    tie_embeddings: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "num_encoder_layers", "num_decoder_layers", "num_units", "d_attention")
        check_rate(self, "dropout_rate")
        if self.first_residual < 3:  # the second layer's input is of both directions, twice as wide as its output
            raise InputError(f"model.first_residual must be at least 3, got {self.first_residual}")

    def parameter_counts(self) -> dict[str, int]:
        """Those of "embedding" (token matrices, pre-softmax projection and its bias), "encoder" and "decoder"."""
        token_matrices = 1 if self.tie_embeddings else 3
        lstm_biases = 4 * self.num_units
        encoder, decoder = self._lstm_matrices()
        attention = self._attention_matrices() + 2 * self.d_attention  # the bias and v
        return {
            "embedding": token_matrices * self.vocab_size * self.d_model + self.vocab_size,
            "encoder": encoder + (self.num_encoder_layers + 1) * lstm_biases,
            "decoder": decoder + self.num_decoder_layers * lstm_biases + attention + self._readout(),
        }

    def training_flops(self, length: int) -> dict[str, int]:
        """Those of "matrices" and of "attention": tanh aside, the products with v and with the memory."""
        matrices = sum(self._lstm_matrices()) + self._attention_matrices() + self._readout()
        return {
            "matrices": 6 * (matrices + self.vocab_size * self.d_model),
            "attention": 6 * length * (self.d_attention + self.num_units),
        }

    def kept_activations(self, length: int) -> Activations:
        """Gates, cells, outputs and inputs of every layer; the attention's hidden layer and weights."""
        layers = self.num_encoder_layers + 1 + self.num_decoder_layers
        attention = length * (2 * self.d_attention + 2) + self.num_units
        return Activations(computed=layers * 8 * self.num_units + attention, float32=0)

    def layer_inputs(self) -> tuple[list[int], list[int]]:
        """The widths of the inputs of the encoder's layers above the first, and of the decoder's."""
        units = self.num_units
        encoder = [2 * units, *[units] * (self.num_encoder_layers - 2)][: self.num_encoder_layers - 1]
        memory = self.d_memory()
        return encoder, [self.d_model + memory, *[units + memory] * (self.num_decoder_layers - 1)]

    def d_memory(self) -> int:
        """Width of the memory."""
        return 2 * self.num_units if self.num_encoder_layers == 1 else self.num_units

    def _lstm_matrices(self) -> tuple[int, int]:
        """Those of the encoder and of the decoder."""
        units = self.num_units
        above, decoder = self.layer_inputs()
        encoder = 2 * 4 * units * (self.d_model + units) + sum(4 * units * (width + units) for width in above)
        return encoder, sum(4 * units * (width + units) for width in decoder)

    def _attention_matrices(self) -> int:
        return self.d_attention * (self.num_units + self.d_memory())

    def _readout(self) -> int:
        """The projection to the width of the embeddings, where that is another."""
        return 0 if self.num_units == self.d_model else self.num_units * self.d_model
