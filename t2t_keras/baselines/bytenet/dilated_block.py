"""A residual block around a dilated convolution, in training and in search steps."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from t2t_keras import kernels
from t2t_keras.baselines.convolution import Convolution, ConvolutionStep, LinearStep
from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.layer import Layer
from t2t_keras.layers.normalization import LayerNormalization
from t2t_keras.layers.trainable_parts import part_arguments
from t2t_keras.tensor import Tensor


@keras.saving.register_keras_serializable(package="t2t_keras")
class DilatedBlock(Layer):
    """A residual block: x + W_3 f(W_2 * f(W_1 f(x))), where f(y) = max(0, LayerNorm(y)).

    W_1 narrows each position to `d_inner`, W_2 is the kernel of a dilated convolution, and W_3 widens each position
    again. All three products have biases.

    Args:
        d_inner: width within the block.
        kernel_size: number of positions that an output of the convolution reads.
        dilation_rate: distance between adjacent positions of these.
        causal: whether the last of these positions is that of the output. Otherwise, the middle one is.
        dropout_rate: dropout on the outputs of W_3, which are added to the inputs.
        epsilon: added to the variance in layer normalisation.

    Call arguments:
        inputs: float [batch, length, width].
        token_mask: bool [batch, length], True = token; the convolution reads other positions as 0. None means that all
            positions are tokens.
        seed: int32 [2], for dropout; None draws a seed.

    Returns:
        float [batch, length, width].

    Reference: Kalchbrenner et al., "Neural Machine Translation in Linear Time", 2016, section 3.
    """

    def __init__(
        self,
        d_inner: int,
        kernel_size: int = 3,
        dilation_rate: int = 1,
        causal: bool = False,
        dropout_rate: float = 0.0,
        epsilon: float = 1e-6,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.d_inner = d_inner
        self.kernel_size = kernel_size
        self.dilation_rate = dilation_rate
        self.causal = causal
        self.dropout_rate = dropout_rate
        self.epsilon = epsilon
        shared = part_arguments(self)
        self.input_norm, self.inner_norm, self.output_norm = (
            LayerNormalization(epsilon, name=name, **shared) for name in ("input_norm", "inner_norm", "output_norm")
        )
        self.narrowing = Convolution(d_inner, 1, name="narrowing", **shared)
        self.dilated = Convolution(d_inner, kernel_size, dilation_rate, causal, name="dilated", **shared)
        self.dropout = Dropout(dropout_rate, name="dropout", **shared)

    def build(self, inputs_shape: tuple) -> None:
        inner = (*inputs_shape[:-1], self.d_inner)
        self.widening = Convolution(inputs_shape[-1], 1, name="widening", **part_arguments(self))
        for layer in (self.input_norm, self.narrowing):
            layer.build(inputs_shape)
        for layer in (self.inner_norm, self.dilated, self.output_norm, self.widening):
            layer.build(inner)

    def call(self, inputs: Tensor, token_mask: Tensor | None = None, seed: Tensor | None = None) -> Tensor:
        outputs = self.connected(inputs, self.narrowing, lambda x: self.dilated(x, token_mask), self.widening)
        return kernels.add(inputs, self.dropout(outputs, seed=seed))

    def connected(
        self,
        inputs: Tensor,
        narrowing: Callable[[Tensor], Tensor],
        dilated: Callable[[Tensor], Tensor],
        widening: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """Returns the residual that the block adds to its inputs: float [..., width] --> [..., width].

        Training and search steps supply different functions for the three products.
        """
        x = narrowing(ops.relu(self.input_norm(inputs)))  # --> [..., d_inner]
        x = dilated(ops.relu(self.inner_norm(x)))  # --> [..., d_inner]
        return widening(ops.relu(self.output_norm(x)))  # --> [..., width]


class DilatedBlockStep:
    """A built causal `DilatedBlock` without dropout that computes only the newest position.

    Its kernels are cast to `dtype` once per search.
    """

    def __init__(self, layer: DilatedBlock, dtype: str) -> None:
        self._layer = layer
        self._narrowing, self._widening = LinearStep(layer.narrowing, dtype), LinearStep(layer.widening, dtype)
        self._dilated = ConvolutionStep(layer.dilated, dtype)

    def empty_past(self, batch: Tensor | int, beam_size: int, dtype: str) -> Tensor:
        """Returns the past of the first position: zeros [batch, beam, past_len, d_inner]."""
        return self._dilated.empty_past(batch, beam_size, dtype)

    def __call__(self, inputs: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """Computes one position; see `ConvolutionStep`. Inputs and outputs are float [batch, beam, width].

        Returns the outputs and the past of the next position.
        """
        pasts = []

        def dilated(x: Tensor) -> Tensor:
            outputs, next_past = self._dilated(x, past)
            pasts.append(next_past)
            return outputs

        return inputs + self._layer.connected(inputs, self._narrowing, dilated, self._widening), pasts[0]
