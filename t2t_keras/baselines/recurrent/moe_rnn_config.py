"""The settings of a recurrent model with mixtures of experts, and the size and cost that follow from them."""

import dataclasses
from typing import Annotated, ClassVar

from t2t_keras.config.model_config import Activations, ModelConfig, register_config
from t2t_keras.errors import InputError
from t2t_keras.values import NonNegativeFloat, NonNegativeInt, PositiveInt, Rate, at_least


@register_config
@dataclasses.dataclass(frozen=True)
class MoERNNConfig(ModelConfig):
    """LSTM layers with mixtures of experts; the defaults are the sizes of Shazeer et al., 2017.

    Attributes:
        num_encoder_layers: number of encoder layers, at least 2. The first two read the embeddings in opposite
            directions; experts follow them.
        num_decoder_layers: number of decoder layers. The first one attends to the memory; experts follow it.
        num_units: width of a layer's cell, whose output is projected to d_model.
        d_attention: width of the attention's hidden layers.
        num_experts: number of experts in the encoder, and in the decoder; 0 means none.
        experts_per_token: number of experts that compute a token.
        d_expert: inner width of an expert.
        gate_noise: whether the choice of experts is noisy in training.
        balance_weight: weight of the losses that encourage an even use of the experts.
        dropout_rate: dropout on embeddings and on the outputs of every layer and of the experts.
        tie_embeddings: whether source, target and pre-softmax projection share one matrix.
    """

    family: ClassVar[str] = "moe_rnn"

    num_encoder_layers: Annotated[int, at_least(2)] = 3
    num_decoder_layers: PositiveInt = 2
    num_units: PositiveInt = 2048
    d_attention: PositiveInt = 512
    num_experts: NonNegativeInt = 32
    experts_per_token: PositiveInt = 4
    d_expert: PositiveInt = 2048
    gate_noise: bool = True
    balance_weight: NonNegativeFloat = 0.01
    dropout_rate: Rate = 0.4
    tie_embeddings: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_experts and self.experts_per_token > self.num_experts:
            raise InputError(
                f"model.experts_per_token={self.experts_per_token} is more than model.num_experts={self.num_experts}"
            )

    def parameter_counts(self) -> dict[str, int]:
        """Counts "embedding" (token matrices, pre-softmax projection and its bias), "encoder" and "decoder"."""
        lstm = self._lstm_matrices() + 4 * self.num_units
        expert = 2 * self.d_model * self.d_expert + self.d_expert + self.d_model
        experts = self.num_experts * (expert + (1 + self.gate_noise) * self.d_model)
        attention = self._attention_matrices() + self.d_attention
        return {
            "embedding": self.token_rows(tied=self.tie_embeddings) * self.d_model + self.vocab_size,
            "encoder": self.num_encoder_layers * lstm + experts,
            "decoder": self.num_decoder_layers * lstm + self._context_matrix() + experts + attention,
        }

    def training_flops(self, length: int) -> dict[str, int]:
        """Counts "matrices", of which a token uses all gates but only its own experts, and "attention"."""
        layers = self.num_encoder_layers + self.num_decoder_layers
        experts = 0
        if self.num_experts:
            gates = (1 + self.gate_noise) * self.num_experts
            experts = self.d_model * (2 * self.experts_per_token * self.d_expert + gates)
        matrices = layers * self._lstm_matrices() + self._context_matrix() + 2 * experts + self._attention_matrices()
        return {
            "matrices": 6 * (matrices + self.vocab_size * self.d_model),
            "attention": 6 * length * (self.d_attention + self.d_model),
        }

    def loop_iterations(self, length: int) -> int:
        """Counts one iteration per layer and position in the forward pass, and one in the backward pass."""
        return 2 * length * (self.num_encoder_layers + self.num_decoder_layers)

    def kept_activations(self, length: int) -> Activations:
        """Counts gates, cells, outputs and inputs of every layer, token-expert pairs, and the attention."""
        layers = self.num_encoder_layers + self.num_decoder_layers
        lstms, lstm_gates = layers * (self.num_units + 4 * self.d_model), layers * 5 * self.num_units  # and cells
        experts = gates = 0
        if self.num_experts:
            experts = 2 * (4 * self.d_model + self.experts_per_token * (4 * self.d_model + self.d_expert))
            gates = 2 * 8 * self.num_experts
        attention = 2 * length + 3 * self.d_attention + self.d_model
        return Activations(computed=lstms + experts + attention, float32=lstm_gates + gates)

    def _lstm_matrices(self) -> int:
        """Counts the weights of one layer with inputs of d_model, projection included."""
        return 4 * self.num_units * 2 * self.d_model + self.num_units * self.d_model

    def _context_matrix(self) -> int:
        """Counts the additional weights of the decoder's first layer, which also reads the context."""
        return 4 * self.num_units * self.d_model

    def _attention_matrices(self) -> int:
        return 2 * self.d_model * self.d_attention
