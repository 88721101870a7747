"""Recurrent layers in one step of a search."""

from typing import Any

from keras import ops

from t2t_keras.layers import kernels
from t2t_keras.layers.kernels.plain import lstm_step
from t2t_keras.layers.recurrent import LSTM, LSTMState

Tensor = Any


class LSTMStep:
    """A built `LSTM` without dropout, its kernels joined and cast to `dtype` once per search."""

    def __init__(self, layer: LSTM, dtype: str) -> None:
        self._bias = layer.bias
        kernel = ops.concatenate([layer.kernel, layer.recurrent_kernel], axis=0)
        self._kernel = ops.cast(kernel, dtype)  # [d_in + units, 4 units]

    def __call__(self, inputs: Tensor, state: LSTMState) -> LSTMState:
        """The state after one position: inputs float [..., d_in], states float [..., units]."""
        gates = kernels.linear(ops.concatenate([inputs, state.hidden], axis=-1), self._kernel, self._bias)
        return LSTMState(*lstm_step(gates, state.cell))
