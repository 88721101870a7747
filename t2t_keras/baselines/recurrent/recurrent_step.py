"""Recurrent layers in one step of a search."""

from keras import ops

from t2t_keras import kernels
from t2t_keras.baselines.recurrent.recurrent import LSTM, LSTMState
from t2t_keras.kernels.plain import lstm_step
from t2t_keras.tensor import Tensor


class LSTMStep:
    """A built `LSTM` without dropout, its kernels cast to `dtype` once per search."""

    def __init__(self, layer: LSTM, dtype: str) -> None:
        self._bias = layer.bias
        projection = layer.projection_kernel
        self._projection = None if projection is None else ops.cast(projection, dtype)  # [units, width]
        self._kernel = ops.cast(layer.kernel, dtype)  # [d_in, 4 units]
        self._recurrent_kernel = ops.cast(layer.recurrent_kernel, dtype)  # [width, 4 units]

    def gates(self, inputs: Tensor) -> Tensor:
        """`LSTM.gates` of one position: float [..., d_in] --> [..., 4 units]."""
        return kernels.linear(inputs, self._kernel, self._bias)

    def __call__(self, gates: Tensor, state: LSTMState) -> LSTMState:
        """The state after one position, from `gates` and the state before it."""
        hidden, cell = lstm_step(gates + kernels.linear(state.hidden, self._recurrent_kernel, None), state.cell)
        return LSTMState(hidden if self._projection is None else kernels.linear(hidden, self._projection, None), cell)
