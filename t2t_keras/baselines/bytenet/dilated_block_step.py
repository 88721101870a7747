"""A residual block around a dilated convolution in one step of a search."""

from t2t_keras.baselines.bytenet.dilated_block import DilatedBlock
from t2t_keras.baselines.convolution_step import ConvolutionStep
from t2t_keras.tensor import Tensor


class DilatedBlockStep:
    """A built causal `DilatedBlock` without dropout at the newest position, its kernels cast once per search."""

    def __init__(self, layer: DilatedBlock, dtype: str) -> None:
        self._layer = layer
        self._narrowing, self._dilated, self._widening = (
            ConvolutionStep(part, dtype) for part in (layer.narrowing, layer.dilated, layer.widening)
        )

    def begin(self, batch: Tensor | int, beam_size: int, dtype: str) -> Tensor:
        """What precedes the first position: zeros [batch, beam, past_len, d_inner]."""
        return self._dilated.begin(batch, beam_size, dtype)

    def __call__(self, inputs: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """The output at one position, float [batch, beam, width] as the inputs, and the past of the next one."""
        pasts = []

        def dilated(x: Tensor) -> Tensor:
            outputs, later = self._dilated(x, past)
            pasts.append(later)
            return outputs

        outputs = self._layer.connected(
            inputs, lambda x: self._narrowing(x, None)[0], dilated, lambda x: self._widening(x, None)[0]
        )
        return inputs + outputs, pasts[0]
