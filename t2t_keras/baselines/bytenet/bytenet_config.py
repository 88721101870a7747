"""The settings of a ByteNet, and what they say of its size and cost."""

import dataclasses
from fractions import Fraction
from typing import Any, ClassVar

from t2t_keras.config.checks import check_positive, check_rate
from t2t_keras.config.model_config import Activations, ModelConfig, register_config
from t2t_keras.errors import InputError

# A factor is taken as a fraction with at most this denominator, so that lengths are exact: 1.2 is 6/5.
_LARGEST_DENOMINATOR = 1000
_LARGEST_FACTOR = 100


@register_config
@dataclasses.dataclass(frozen=True)
class ByteNetConfig(ModelConfig):
    """Stacks of dilated convolutions (Kalchbrenner et al., 2016); the defaults are that paper's for translation.

    `d_model`, the paper's d, is the width of the target's embeddings, of the memory and within a block. Between blocks
    and in the source's embeddings the width is twice that.

    Attributes:
        num_encoder_layers: residual blocks of the encoder.
        num_decoder_layers: residual blocks of the decoder.
        kernel_size: positions that a dilated convolution reads, an odd number.
        dilation_rates: distances between these positions in the first blocks, repeated for those above.
        unfolding_factor: a of the memory's length a * source length + b; at least 1.
        unfolding_offset: b of the memory's length.
        dropout_rate: dropout on the inputs of each stack and on what each block adds; the paper mentions none.
        tie_embeddings: one matrix for the target and the pre-softmax projection.
        layer_norm_epsilon: added to the variance in layer normalisation.
    """

    family: ClassVar[str] = "bytenet"

    d_model: int = 800
    num_encoder_layers: int = 30
    num_decoder_layers: int = 30
    kernel_size: int = 3
    dilation_rates: tuple[int, ...] = (1, 2, 4, 8, 16)
    unfolding_factor: float = 1.2
    unfolding_offset: int = 0
    dropout_rate: float = 0.0
    tie_embeddings: bool = False
    layer_norm_epsilon: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "num_encoder_layers", "num_decoder_layers", "kernel_size", "layer_norm_epsilon")
        check_rate(self, "dropout_rate")
        if self.kernel_size % 2 == 0:
            raise InputError(f"model.kernel_size must be odd, got {self.kernel_size}")
        if not self.dilation_rates or min(self.dilation_rates) < 1:
            raise InputError(f"model.dilation_rates must be positive, got {self.dilation_rates}")
        if not 1 <= self.unfolding_factor <= _LARGEST_FACTOR:
            raise InputError(f"model.unfolding_factor must be from 1 to {_LARGEST_FACTOR}, got {self.unfolding_factor}")
        if self.unfolding_offset < 0:
            raise InputError(f"model.unfolding_offset must not be negative, got {self.unfolding_offset}")

    def unfolded_length(self, source_length: Any) -> Any:
        """The length of the memory of a source, rounded down; both are integers, or tensors of integers."""
        factor = self._factor
        return source_length * factor.numerator // factor.denominator + self.unfolding_offset

    @property
    def _factor(self) -> Fraction:
        return Fraction(self.unfolding_factor).limit_denominator(_LARGEST_DENOMINATOR)

    def dilation_rate(self, layer: int) -> int:
        """The dilation rate of a block of either stack, counted from 0."""
        return self.dilation_rates[layer % len(self.dilation_rates)]

    def receptive_field(self, num_layers: int) -> int:
        """The number of positions that an output of so many blocks depends on, as long as none lies beyond an end."""
        return 1 + (self.kernel_size - 1) * sum(map(self.dilation_rate, range(num_layers)))

    def parameter_counts(self) -> dict[str, int]:
        """Those of "embedding" (tokens, unfolding, pre-softmax projection and its bias), "encoder" and "decoder"."""
        d_model = self.d_model
        block = (
            self._block_matrices() + 12 * d_model
        )  # a bias and a normalisation, 3 vectors, of 2d once and of d twice
        readout = 2 * d_model * d_model + d_model + 4 * d_model
        token_rows = self.vocab_size * (1 if self.tie_embeddings else 2) + 2 * self.source_entries  # twice as wide
        return {
            "embedding": token_rows * d_model + self.vocab_size + 2 * d_model,
            "encoder": self.num_encoder_layers * block + readout,
            "decoder": self.num_decoder_layers * block + readout,
        }

    def training_flops(self, length: int) -> dict[str, int]:
        """Those of "matrices", and of the encoder's at the positions that "unfolding" adds to the source."""
        encoder, decoder = (
            layers * self._block_matrices() + 2 * self.d_model**2
            for layers in (self.num_encoder_layers, self.num_decoder_layers)
        )
        return {
            "matrices": 6 * (encoder + decoder + self.vocab_size * self.d_model),
            "unfolding": 6 * encoder * (self.unfolded_length(length) - length) // length,
        }

    def kept_activations(self, length: int) -> Activations:
        """The inputs of every product, and what is normalised, in each block."""
        blocks = self.num_encoder_layers * self.unfolded_length(length) // length + self.num_decoder_layers
        dropped = 2 if self.dropout_rate else 0  # the mask
        return Activations(
            computed=blocks * (4 + self.kernel_size + dropped) * self.d_model, float32=blocks * 4 * self.d_model
        )

    def sizes(self) -> dict[str, str]:
        """The settings that change the number of parameters, and what the stacks can see."""
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
        """Parameters of a block's three products: 2d to d, d to d at each position of the kernel, d to 2d."""
        return (4 + self.kernel_size) * self.d_model**2
