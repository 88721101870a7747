"""The blocks of ConvS2S in one step of a search."""

from keras import ops

from t2t_keras import kernels
from t2t_keras.baselines.conv_s2s.convolution_block import AttentiveConvolutionBlock, BlockLinears, ConvolutionalMemory
from t2t_keras.baselines.convolution import Convolution
from t2t_keras.baselines.convolution_step import ConvolutionStep
from t2t_keras.tensor import Tensor


class LinearStep:
    """A built `Convolution` of one position, its kernel made and cast to `dtype` once per search."""

    def __init__(self, layer: Convolution, dtype: str) -> None:
        self._kernel, self._bias = ops.cast(layer.weight()[0], dtype), layer.bias

    def __call__(self, inputs: Tensor) -> Tensor:
        """The linear map of float [..., d_in]: float [..., filters]."""
        return kernels.linear(inputs, self._kernel, self._bias)


class AttentiveConvolutionStep:
    """A built `AttentiveConvolutionBlock` without dropout at the newest position."""

    def __init__(self, layer: AttentiveConvolutionBlock, dtype: str) -> None:
        self.convolution = ConvolutionStep(layer.convolution, dtype)
        projection = None if layer.projection is None else LinearStep(layer.projection, dtype)
        self._linears = BlockLinears(projection, LinearStep(layer.query, dtype), LinearStep(layer.output_linear, dtype))

    def __call__(
        self, inputs: Tensor, embedded: Tensor, memory: ConvolutionalMemory, past: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The block's output, its attention's weights, and the past of the next position; see `ConvolutionStep`.

        Inputs and embeddings are float [batch, beam, width], weights [batch, beam, source_len].
        """
        convolved, past = self.convolution(inputs, past)
        outputs, weights = AttentiveConvolutionBlock.connected(inputs, convolved, embedded, memory, self._linears)
        return outputs, weights, past
