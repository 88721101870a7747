"""The blocks of a convolutional model: gated convolutions with residual connections, with and without attention."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import keras

from t2t_keras.baselines.convolution import Convolution, ConvolutionStep, LinearStep, gated_linear_unit
from t2t_keras.layers.attention.scores import dot_product_attention
from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.layer import Layer
from t2t_keras.layers.trainable_parts import part_arguments
from t2t_keras.tensor import Tensor

ROOT_HALF = math.sqrt(0.5)  # keeps the variance of a sum of two terms


class ConvolutionalMemory(NamedTuple):
    """The memory to which the decoder's blocks attend.

    Attributes:
        keys: z, the encoder's outputs, float [batch, source_len, d_model].
        values: (z + e) * sqrt(0.5) * sqrt(m), where e is the embedded source and m its number of tokens, float
            [batch, source_len, d_model]. Gehring et al. multiply the context by m * sqrt(1 / m) instead, which gives
            the same result.
        mask: bool [batch, 1, source_len], True = token.
    """

    keys: Tensor
    values: Tensor
    mask: Tensor


def normalised_linear(width: int, *, dropout_rate: float = 0.0, **kwargs: Any) -> Convolution:
    """Returns a weight-normalised linear layer, initialised as in section 3.5 of Gehring et al., 2017.

    The kernel is drawn from N(0, (1 - dropout_rate) / d_in), where `dropout_rate` is the rate of the dropout on the
    layer's inputs.
    """
    initializer = _normal(1 - dropout_rate)
    return Convolution(width, 1, weight_normalization=True, kernel_initializer=initializer, **kwargs)


def _normal(scale: float) -> keras.initializers.Initializer:
    """Returns an initializer that draws from N(0, scale / number of inputs of an output)."""
    return keras.initializers.VarianceScaling(scale, mode="fan_in", distribution="untruncated_normal")


class _Block(Layer):
    """Base class of both kinds of blocks: dropout, a convolution, and a projection if the width changes."""

    causal = False  # as in `Convolution`

    def __init__(self, width: int, kernel_size: int, dropout_rate: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.width = width
        self.kernel_size = kernel_size
        self.dropout_rate = dropout_rate
        self.dropout = Dropout(dropout_rate, name="dropout", **part_arguments(self))
        self.convolution = Convolution(
            2 * width,  # both halves of the gated linear unit
            kernel_size,
            causal=self.causal,
            weight_normalization=True,
            kernel_initializer=_normal(4 * (1 - dropout_rate)),
            name="convolution",
            **part_arguments(self),
        )
        self.projection: Convolution | None = None

    def build(self, inputs_shape: tuple) -> None:
        self.convolution.build(inputs_shape)
        if inputs_shape[-1] != self.width:
            self.projection = normalised_linear(self.width, name="projection", **part_arguments(self))
            self.projection.build(inputs_shape)


@keras.saving.register_keras_serializable(package="t2t_keras")
class ConvolutionBlock(_Block):
    """A gated convolution with a residual connection: (GLU(convolution(dropout(x))) + x) * sqrt(0.5).

    If the width of x differs from that of the outputs, x is projected before it is added.

    Args:
        width: width of the outputs.
        kernel_size: kernel size of the convolution.
        dropout_rate: dropout on the convolution's inputs.

    Call arguments:
        inputs: float [batch, length, d_in].
        token_mask: as in `Convolution`.
        seed: int32 [2], for dropout; None draws a seed.

    Returns:
        float [batch, length, width].

    Reference: Gehring et al., "Convolutional Sequence to Sequence Learning", 2017, section 3.2.
    """

    def call(self, inputs: Tensor, token_mask: Tensor | None = None, seed: Tensor | None = None) -> Tensor:
        convolved = self.convolution(self.dropout(inputs, seed=seed), token_mask)
        return (gated_linear_unit(convolved) + _project(inputs, self.projection)) * ROOT_HALF

    def compute_output_shape(self, inputs_shape: tuple, *_: Any) -> tuple:
        return (*inputs_shape[:-1], self.width)


class BlockLinears(NamedTuple):
    """The linear maps of an `AttentiveConvolutionBlock`, which are its layers, or `LinearStep`s in a search.

    Attributes:
        projection: maps the block's inputs to the width of its outputs; None if they have this width.
        query: maps the outputs of the gated linear unit to the width of the embeddings.
        output: maps the context to the width of the block's outputs.
    """

    projection: Callable[[Tensor], Tensor] | None
    query: Callable[[Tensor], Tensor]
    output: Callable[[Tensor], Tensor]


@keras.saving.register_keras_serializable(package="t2t_keras")
class AttentiveConvolutionBlock(_Block):
    """A causal `ConvolutionBlock` with attention to a memory between the gated linear unit and the residual sum.

    Args:
        width: width of the outputs.
        kernel_size: kernel size of the convolution.
        d_model: width of the embeddings and of the memory.
        dropout_rate: dropout on the convolution's inputs.

    Call arguments:
        inputs: float [batch, length, d_in].
        embedded: the embedded target, float [batch, length, d_model].
        memory: a `ConvolutionalMemory`.
        seed: int32 [2], for dropout; None draws a seed.

    Returns:
        The outputs, float [batch, length, width], and the attention weights, float [batch, length, source_len].

    Reference: Gehring et al., "Convolutional Sequence to Sequence Learning", 2017, section 3.3.
    """

    causal = True

    def __init__(self, width: int, kernel_size: int, d_model: int, dropout_rate: float = 0.0, **kwargs: Any) -> None:
        super().__init__(width, kernel_size, dropout_rate, **kwargs)
        self.d_model = d_model
        self.query = normalised_linear(d_model, name="query", **part_arguments(self))
        self.output_linear = normalised_linear(width, name="output", **part_arguments(self))

    def build(self, inputs_shape: tuple) -> None:
        super().build(inputs_shape)
        self.query.build((*inputs_shape[:-1], self.width))
        self.output_linear.build((*inputs_shape[:-1], self.d_model))

    def call(
        self, inputs: Tensor, embedded: Tensor, memory: ConvolutionalMemory, seed: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        convolved = self.convolution(self.dropout(inputs, seed=seed))
        linears = BlockLinears(self.projection, self.query, self.output_linear)
        return self.connected(inputs, convolved, embedded, memory, linears)

    @staticmethod
    def connected(
        inputs: Tensor, convolved: Tensor, embedded: Tensor, memory: ConvolutionalMemory, linears: BlockLinears
    ) -> tuple[Tensor, Tensor]:
        """Returns the block's results, given its inputs and its convolution's outputs.

        `convolved` is float [batch, length, 2 width]. In a search step, the beam takes the place of the length.
        """
        hidden = gated_linear_unit(convolved)  # --> [batch, length, width]
        queries = (linears.query(hidden) + embedded) * ROOT_HALF  # --> [batch, length, d_model]
        context, weights = dot_product_attention(
            queries, memory.keys, memory.values, memory.mask
        )  # --> [batch, length, d_model], [batch, length, source_len]
        hidden = (linears.output(context) + hidden) * ROOT_HALF
        return (hidden + _project(inputs, linears.projection)) * ROOT_HALF, weights

    def compute_output_shape(self, inputs_shape: tuple, embedded_shape: Any = None, memory_shape: Any = None) -> tuple:
        source_len = memory_shape[0][-2] if memory_shape else None  # Keras's summary gives only the first shape
        return (*inputs_shape[:-1], self.width), (*inputs_shape[:-1], source_len)


def _project(inputs: Tensor, projection: Callable[[Tensor], Tensor] | None) -> Tensor:
    """Returns a block's inputs, projected to the width of its outputs if there is a projection."""
    return inputs if projection is None else projection(inputs)


class AttentiveConvolutionStep:
    """A built `AttentiveConvolutionBlock` without dropout that computes only the newest position."""

    def __init__(self, layer: AttentiveConvolutionBlock, dtype: str) -> None:
        self.convolution = ConvolutionStep(layer.convolution, dtype)
        projection = None if layer.projection is None else LinearStep(layer.projection, dtype)
        self._linears = BlockLinears(projection, LinearStep(layer.query, dtype), LinearStep(layer.output_linear, dtype))

    def __call__(
        self, inputs: Tensor, embedded: Tensor, memory: ConvolutionalMemory, past: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Computes one position; see `ConvolutionStep`.

        Args:
            inputs: float [batch, beam, d_in].
            embedded: the embedded tokens, float [batch, beam, d_model].
            memory: a `ConvolutionalMemory`.
            past: the past of this position, float [batch, beam, past_len, d_in].

        Returns:
            The outputs, float [batch, beam, width], the attention weights, float [batch, beam, source_len], and the
            past of the next position.
        """
        convolved, past = self.convolution(inputs, past)
        outputs, weights = AttentiveConvolutionBlock.connected(inputs, convolved, embedded, memory, self._linears)
        return outputs, weights, past
