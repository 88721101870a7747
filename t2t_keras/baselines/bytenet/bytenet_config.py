"""The settings of a ByteNet, and the size and cost that follow from them."""

import dataclasses
from fractions import Fraction
from typing import Annotated, Any, ClassVar

from t2t_keras.config.model_config import Activations, ModelConfig, register_config
from t2t_keras.errors import InputError
from t2t_keras.values import NonNegativeInt, PositiveFloat, PositiveInt, Rate, between

# The factor is converted to a fraction with at most this denominator, so that lengths are exact: 1.2 becomes 6/5.
_LARGEST_DENOMINATOR = 1000


@register_config
@dataclasses.dataclass(frozen=True)
class ByteNetConfig(ModelConfig):
    """Stacks of dilated convolutions; the defaults are those for translation of Kalchbrenner et al., 2016.

    `d_model`, d in their paper, is the width of the target embeddings, of the memory and within a block. The source
    embeddings, and the inputs and outputs of blocks, are twice as wide.

    Attributes:
        num_encoder_layers: number of residual blocks of the encoder.
        num_decoder_layers: number of residual blocks of the decoder.
        kernel_size: number of positions that a dilated convolution reads, an odd number.
        dilation_rates: distances between these positions in the first blocks, repeated for the blocks above.
        unfolding_factor: a in the memory's length, a * source length + b; from 1 to 100.
        unfolding_offset: b in the memory's length, at least 0.
        dropout_rate: dropout on the inputs of each stack and on the residual of each block; the paper mentions none.
        tie_embeddings: whether target and pre-softmax projection share one matrix.
        layer_norm_epsilon: added to the variance in layer normalisation.
    """

    family: ClassVar[str] = "bytenet"

    d_model: PositiveInt = 800
    num_encoder_layers: PositiveInt = 30
    num_decoder_layers: PositiveInt = 30
    kernel_size: PositiveInt = 3
    dilation_rates: tuple[PositiveInt, ...] = (1, 2, 4, 8, 16)
    unfolding_factor: Annotated[float, between(1, 100)] = 1.2
    unfolding_offset: NonNegativeInt = 0
    dropout_rate: Rate = 0.0
    tie_embeddings: bool = False
    layer_norm_epsilon: PositiveFloat = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kernel_size % 2 == 0:
            raise InputError(f"model.kernel_size must be odd, got {self.kernel_size}")
        if not self.dilation_rates:
            raise InputError("model.dilation_rates must not be empty")

    def unfolded_length(self, source_length: Any) -> Any:
        """Returns the length of the memory for a source length, rounded down; both are integers or integer tensors."""
        factor = self._factor
        return source_length * factor.numerator // factor.denominator + self.unfolding_offset

    @property
    def _factor(self) -> Fraction:
        return Fraction(self.unfolding_factor).limit_denominator(_LARGEST_DENOMINATOR)

    def dilation_rate(self, layer: int) -> int:
        """Returns the dilation rate of a block of either stack; blocks are counted from 0."""
        return self.dilation_rates[layer % len(self.dilation_rates)]

    def receptive_field(self, num_layers: int) -> int:
        """Returns the number of positions on which an output of `num_layers` blocks depends, far from both ends."""
        return 1 + (self.kernel_size - 1) * sum(map(self.dilation_rate, range(num_layers)))

    def parameter_counts(self) -> dict[str, int]:
        """Counts "embedding" (tokens, unfolding, pre-softmax projection and its bias), "encoder" and "decoder"."""
        d_model = self.d_model
        # A block has a bias and the two vectors of a normalisation for each of the widths 2d, d and d.
        block = self._block_matrices() + 3 * (2 + 1 + 1) * d_model
        readout = 2 * d_model * d_model + d_model + 4 * d_model
        token_rows = self.vocab_size * (1 if self.tie_embeddings else 2) + 2 * self.source_entries  # twice as wide
        return {
            "embedding": token_rows * d_model + self.vocab_size + 2 * d_model,
            "encoder": self.num_encoder_layers * block + readout,
            "decoder": self.num_decoder_layers * block + readout,
        }

    def training_flops(self, length: int) -> dict[str, int]:
        """Counts "matrices", and "unfolding" for the encoder's matrices at the positions added to the source."""
        encoder, decoder = (
            layers * self._block_matrices() + 2 * self.d_model**2
            for layers in (self.num_encoder_layers, self.num_decoder_layers)
        )
        return {
            "matrices": 6 * (encoder + decoder + self.vocab_size * self.d_model),
            "unfolding": 6 * encoder * (self.unfolded_length(length) - length) // length,
        }

    def kept_activations(self, length: int) -> Activations:
        """Counts the inputs of all products and normalisations of each block."""
        blocks = self.num_encoder_layers * self.unfolded_length(length) // length + self.num_decoder_layers
        dropout = 2 if self.dropout_rate else 0  # the mask
        return Activations(
            computed=blocks * (4 + self.kernel_size + dropout) * self.d_model, float32=blocks * 4 * self.d_model
        )

    def sizes(self) -> dict[str, str]:
        """Returns the settings that `launch.describe` lists, and the receptive fields of both stacks."""
        stacks = (self.num_encoder_layers, self.num_decoder_layers)
        return {
            "vocab_size": self.entries,
            "blocks (encoder + decoder)": " + ".join(map(str, stacks)),
            "d_model (within blocks, between)": f"{self.d_model:,}, {2 * self.d_model:,}",
            "kernel_size": str(self.kernel_size),
            "dilation_rates": ", ".join(map(str, self.dilation_rates)),
            "receptive field (encoder, decoder)": ", ".join(f"{self.receptive_field(size):,}" for size in stacks),
            "memory's length": f"{float(self._factor):.4g} x source + {self.unfolding_offset}",
            "embeddings": "target and output tied" if self.tie_embeddings else "separate",
            "dropout": str(self.dropout_rate),
        }

    def _block_matrices(self) -> int:
        """Counts the weights of a block's three products: 2d to d, d to d for each position of the kernel, d to 2d."""
        return (4 + self.kernel_size) * self.d_model**2
