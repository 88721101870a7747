"""Convolutions over time, in training and in search steps, and the gated linear unit."""

from typing import Any

import keras
from keras import ops

from t2t_keras import kernels
from t2t_keras.layers.layer import Layer
from t2t_keras.tensor import Tensor
from t2t_keras.values import PositiveInt, check_arguments


@keras.saving.register_keras_serializable(package="t2t_keras")
class Convolution(Layer):
    """A convolution over time: y_t = b + sum_i x_(t + i * dilation_rate - before) W_i.

    A sequence is 0 beyond its ends. With a `kernel_size` of 1, the layer is a linear layer. Weight normalisation
    represents the kernel as W = g V / |V|, where |V| has a norm for each output channel. Initially g = |V|.

    Args:
        filters: width of the outputs.
        kernel_size: number of positions that an output reads.
        dilation_rate: distance between adjacent positions of these.
        causal: whether the last of these positions is that of the output. Otherwise, the middle one is, and
            `kernel_size` must be odd.
        weight_normalization: whether to normalise the kernel.
        kernel_initializer: initializer of W, or of V.

    Call arguments:
        inputs: float [batch, length, d_in].
        token_mask: bool [batch, length], True = token; other positions are read as 0. None means that all positions are
            tokens.

    Returns:
        float [batch, length, filters].

    Reference: van den Oord et al., "WaveNet", 2016; Salimans and Kingma, "Weight Normalization", 2016.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int,
        dilation_rate: int = 1,
        causal: bool = False,
        weight_normalization: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_arguments(PositiveInt, filters=filters, kernel_size=kernel_size, dilation_rate=dilation_rate)
        if not causal and kernel_size % 2 == 0:
            raise ValueError(f"`kernel_size` must be odd for a convolution that is not causal, got {kernel_size}")
        self.filters = filters
        self.kernel_size = kernel_size
        self.dilation_rate = dilation_rate
        self.causal = causal
        self.weight_normalization = weight_normalization
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.scale = None

    def build(self, inputs_shape: tuple) -> None:
        self.kernel = self.add_weight(
            shape=(self.kernel_size, inputs_shape[-1], self.filters),
            initializer=self.kernel_initializer,
            name="kernel",
            autocast=False,  # its norm needs float32
        )
        if self.weight_normalization:
            self.scale = self.add_weight(
                shape=(self.filters,),
                initializer=lambda shape, dtype=None: ops.cast(_norms(self.kernel), dtype),
                name="scale",
                autocast=False,
            )
        self.bias = self.add_weight(shape=(self.filters,), initializer="zeros", name="bias")

    def weight(self) -> Tensor:
        """Returns W, float32 [kernel_size, d_in, filters]."""
        if self.scale is None:
            return ops.convert_to_tensor(self.kernel)
        return self.kernel * (self.scale / _norms(self.kernel))

    def call(self, inputs: Tensor, token_mask: Tensor | None = None) -> Tensor:
        if token_mask is not None:
            inputs = inputs * ops.expand_dims(ops.cast(token_mask, inputs.dtype), -1)
        reach = (self.kernel_size - 1) * self.dilation_rate
        before = reach if self.causal else reach // 2
        return kernels.convolution(inputs, self.weight(), self.bias, self.dilation_rate, before)

    def compute_output_shape(self, inputs_shape: tuple, *_: Any) -> tuple:
        return (*inputs_shape[:-1], self.filters)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "kernel_initializer": keras.initializers.serialize(self.kernel_initializer)}


def _norms(kernel: Tensor) -> Tensor:
    """Returns the norm of each output channel's weights: [kernel_size, d_in, filters] --> [filters]."""
    return ops.sqrt(ops.sum(ops.square(kernel), axis=(0, 1)))


def gated_linear_unit(inputs: Tensor) -> Tensor:
    """Returns a * sigmoid(b), where a and b are halves of the last axis: float [..., 2 width] --> [..., width].

    Reference: Dauphin et al., "Language Modeling with Gated Convolutional Networks", 2017.
    """
    values, gates = ops.split(inputs, 2, axis=-1)
    return values * ops.sigmoid(gates)


class LinearStep:
    """A built `Convolution` with a kernel size of 1, whose kernel is computed and cast to `dtype` once per search."""

    def __init__(self, layer: Convolution, dtype: str) -> None:
        self._kernel, self._bias = ops.cast(layer.weight()[0], dtype), layer.bias

    def __call__(self, inputs: Tensor) -> Tensor:
        """Applies the linear map: float [..., d_in] --> [..., filters]."""
        return kernels.linear(inputs, self._kernel, self._bias)


class ConvolutionStep:
    """A built causal `Convolution` that computes only the newest position.

    Its kernel is computed and cast to `dtype` once per search.

    Raises:
        ValueError: the convolution is not causal.
    """

    def __init__(self, layer: Convolution, dtype: str) -> None:
        if not layer.causal:
            raise ValueError(f"`layer` must be causal, but {layer.name} reads later positions")
        self._bias, self._dilation_rate = layer.bias, layer.dilation_rate
        kernel_size, self._d_in, filters = layer.kernel.shape
        self._past_len = (kernel_size - 1) * layer.dilation_rate
        kernel = ops.reshape(layer.weight(), (kernel_size * self._d_in, filters))
        self._kernel = ops.cast(kernel, dtype)  # [kernel_size * d_in, filters]

    def empty_past(self, batch: Tensor | int, beam_size: int, dtype: str) -> Tensor:
        """Returns the past of the first position: zeros [batch, beam, past_len, d_in]."""
        return ops.zeros((batch, beam_size, self._past_len, self._d_in), dtype)

    def __call__(self, inputs: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """Computes one position.

        Args:
            inputs: float [batch, beam, d_in].
            past: float [batch, beam, past_len, d_in], inputs at the preceding positions, oldest first.

        Returns:
            The outputs, float [batch, beam, filters], and the past of the next position.
        """
        span = ops.concatenate([past, inputs[..., None, :]], axis=-2)  # --> [batch, beam, past_len + 1, d_in]
        window = span[..., :: self._dilation_rate, :]  # --> [batch, beam, kernel_size, d_in]
        batch, beam, *_ = ops.shape(inputs)
        window = ops.reshape(window, (batch, beam, self._kernel.shape[0]))
        return kernels.linear(window, self._kernel, self._bias), span[..., 1:, :]
