"""The settings of a convolutional model with attention, and the size and cost that follow from them."""

import dataclasses
import functools
import re
from typing import ClassVar, NamedTuple

from t2t_keras.config.model_config import Activations, ModelConfig, register_config
from t2t_keras.errors import InputError
from t2t_keras.values import PositiveInt, Rate


class BlockSizes(NamedTuple):
    """Sizes of one block.

    Attributes:
        d_in: width of its inputs.
        width: width of its outputs.
        kernel_size: number of positions that an output of its convolution reads.
    """

    d_in: int
    width: int
    kernel_size: int


@register_config
@dataclasses.dataclass(frozen=True)
class ConvS2SConfig(ModelConfig):
    """Gated convolutions with attention; the defaults are the WMT English to German model of Gehring et al., 2017.

    Blocks are listed as number x width x kernel size, for example 9x512x3,4x1024x3,2x2048x1.

    Attributes:
        d_output: width of the hidden states that the output matrix multiplies; None means d_model.
        encoder_layers: the encoder's blocks; kernel sizes must be odd.
        decoder_layers: the decoder's blocks, all of which attend to the memory.
        max_positions: number of rows of each learned position table.
        dropout_rate: dropout on the sums of embeddings and positions, on the inputs of every convolution, and before
            the output matrix.
        tie_embeddings: whether source, target and pre-softmax projection share one matrix; d_output must then be None
            or d_model.
    """

    family: ClassVar[str] = "conv_s2s"

    d_model: PositiveInt = 768
    d_output: PositiveInt | None = 512
    encoder_layers: str = "9x512x3,4x1024x3,2x2048x1"
    decoder_layers: str = "9x512x3,4x1024x3,2x2048x1"
    max_positions: PositiveInt = 1024
    dropout_rate: Rate = 0.2
    tie_embeddings: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, blocks in (("encoder_layers", self.encoder_blocks()), ("decoder_layers", self.decoder_blocks())):
            if not blocks:
                raise InputError(
                    f"model.{name} must list blocks as number x width x kernel size, for example 4x256x3,2x512x1, "
                    f"got {getattr(self, name)!r}"
                )
        if even_sizes := [block.kernel_size for block in self.encoder_blocks() if block.kernel_size % 2 == 0]:
            raise InputError(f"model.encoder_layers must have odd kernel sizes, got {even_sizes[0]}")
        if self.tie_embeddings and self.output_width() != self.d_model:
            raise InputError(
                f"model.tie_embeddings needs model.d_output to be model.d_model={self.d_model}, got {self.d_output}; "
                "set model.d_output=none"
            )

    def encoder_blocks(self) -> tuple[BlockSizes, ...]:
        """Returns the encoder's blocks; empty if `encoder_layers` is not valid."""
        return _blocks(self.encoder_layers)

    def decoder_blocks(self) -> tuple[BlockSizes, ...]:
        """Returns the decoder's blocks; empty if `decoder_layers` is not valid."""
        return _blocks(self.decoder_layers)

    def output_width(self) -> int:
        """Returns the width of the hidden states that the output matrix multiplies."""
        return self.d_output or self.d_model

    def parameter_counts(self) -> dict[str, int]:
        """Counts "embedding" (tokens, positions, pre-softmax projection and its bias), "encoder" and "decoder"."""
        tied = self.tie_embeddings
        output = 0 if tied else self.vocab_size * self.output_width()
        token_rows = self.token_rows(tied=tied) - (0 if tied else self.vocab_size) + 2 * self.max_positions
        encoder, decoder = self._matrices()
        return {
            "embedding": token_rows * self.d_model + output + self.vocab_size,
            "encoder": encoder + self._scales_and_biases(self.encoder_blocks(), self.d_model),
            "decoder": decoder
            + self._scales_and_biases(self.decoder_blocks(), self.output_width())
            + 2 * sum(block.width + self.d_model for block in self.decoder_blocks()),
        }

    def training_flops(self, length: int) -> dict[str, int]:
        """Counts "matrices" and "attention": products with `length` keys and values in each decoder block."""
        return {
            "matrices": 6 * (sum(self._matrices()) + self.vocab_size * self.output_width()),
            "attention": 6 * len(self.decoder_blocks()) * length * 2 * self.d_model,
        }

    def kept_activations(self, length: int) -> Activations:
        """Counts the activations of each block and of each attention.

        Those of a block are its inputs after dropout and their mask, the convolution's windows, both halves of the
        gated linear unit, its gates and its outputs. Those of an attention are its queries, weights, contexts and sums.
        """
        blocks = (*self.encoder_blocks(), *self.decoder_blocks())
        convolutions = sum((2 + block.kernel_size) * block.d_in + 5 * block.width for block in blocks)
        attentions = sum(2 * length + 3 * self.d_model + 2 * block.width for block in self.decoder_blocks())
        return Activations(computed=convolutions + attentions + 6 * self.d_model + 2 * self.output_width(), float32=0)

    def _matrices(self) -> tuple[int, int]:
        """Counts the weights of the kernels of the encoder, and of the decoder."""
        attention = sum(2 * block.width * self.d_model for block in self.decoder_blocks())
        encoder, decoder = (
            blocks[0].d_in * self.d_model
            + sum(block.kernel_size * block.d_in * 2 * block.width for block in blocks)
            + sum(block.d_in * block.width for block in blocks if block.d_in != block.width)
            + blocks[-1].width * d_out
            for blocks, d_out in ((self.encoder_blocks(), self.d_model), (self.decoder_blocks(), self.output_width()))
        )
        return encoder, decoder + attention

    @staticmethod
    def _scales_and_biases(blocks: tuple[BlockSizes, ...], d_out: int) -> int:
        """Counts a scale and a bias for each output channel of a stack's kernels, attention excluded."""
        projected = sum(block.width for block in blocks if block.d_in != block.width)
        return 2 * (blocks[0].d_in + sum(2 * block.width for block in blocks) + projected + d_out)


@functools.cache
def _blocks(text: str) -> tuple[BlockSizes, ...]:
    """Parses a list of blocks such as 4x256x3,2x512x1; empty if the list is not valid."""
    blocks: list[BlockSizes] = []
    for part in text.split(","):
        match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)", part.strip())
        if not match:
            return ()
        number, width, kernel_size = map(int, match.groups())
        for _ in range(number):
            blocks.append(BlockSizes(blocks[-1].width if blocks else width, width, kernel_size))
    return tuple(blocks)
