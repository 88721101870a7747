"""Convolutions in one step of a search."""

from keras import ops

from t2t_keras import kernels
from t2t_keras.baselines.convolution import Convolution
from t2t_keras.tensor import Tensor


class ConvolutionStep:
    """A built causal `Convolution` at the newest position, its kernel made and cast to `dtype` once per search."""

    def __init__(self, layer: Convolution, dtype: str) -> None:
        if not layer.causal and layer.kernel_size > 1:
            raise ValueError(f"`layer` must be causal, but {layer.name} reads later positions")
        self._bias, self._dilation_rate = layer.bias, layer.dilation_rate
        kernel_size, self._d_in, filters = layer.kernel.shape
        self._past_len = (kernel_size - 1) * layer.dilation_rate
        kernel = ops.reshape(layer.weight(), (kernel_size * self._d_in, filters))
        self._kernel = ops.cast(kernel, dtype)  # [kernel_size * d_in, filters]

    def begin(self, batch: Tensor | int, beam_size: int, dtype: str) -> Tensor:
        """What precedes the first position: zeros [batch, beam, past_len, d_in]."""
        return ops.zeros((batch, beam_size, self._past_len, self._d_in), dtype)

    def __call__(self, inputs: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """The output at one position, and the past of the next one.

        Inputs are float [batch, beam, d_in], outputs [batch, beam, filters]; a past is [batch, beam, past_len, d_in],
        oldest first.
        """
        if not self._past_len:
            return kernels.linear(inputs, self._kernel, self._bias), past
        span = ops.concatenate([past, inputs[..., None, :]], axis=-2)  # --> [batch, beam, past_len + 1, d_in]
        window = span[..., :: self._dilation_rate, :]  # --> [batch, beam, kernel_size, d_in]
        batch, beam, *_ = ops.shape(inputs)
        window = ops.reshape(window, (batch, beam, self._kernel.shape[0]))
        return kernels.linear(window, self._kernel, self._bias), span[..., 1:, :]
