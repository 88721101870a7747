"""Recurrent layers: LSTM, LSTM with attention to a memory, and LSTM in search steps."""

from typing import Any, Literal, NamedTuple

import keras
from keras import ops

from t2t_keras import kernels
from t2t_keras.baselines.recurrent.hidden_attention import AdditiveAttention, MultiplicativeAttention
from t2t_keras.kernels.plain import lstm_step
from t2t_keras.layers.layer import Layer
from t2t_keras.layers.trainable_parts import part_arguments
from t2t_keras.tensor import Tensor
from t2t_keras.values import PositiveInt, check_arguments

_ATTENTIONS: dict[str, Any] = {"additive": AdditiveAttention, "multiplicative": MultiplicativeAttention}


class LSTMState(NamedTuple):
    """The state of an LSTM between two positions.

    Attributes:
        hidden: float [..., width], the hidden state, projected if the layer has a projection.
        cell: float32 [..., units].
    """

    hidden: Tensor
    cell: Tensor


@keras.saving.register_keras_serializable(package="t2t_keras")
class LSTM(Layer):
    """A long short-term memory (LSTM).

    One product computes the contributions of the inputs of all positions to the gates.

    Args:
        units: width of the cell, and of the hidden state if it is not projected.
        reverse: whether the sequence is read from its end.
        projection: width to which the hidden state is projected, for the next position and for the output; None means
            no projection.

    Call arguments:
        inputs: float [batch, length, d_in].
        token_mask: bool [batch, length], True = token; other positions leave the state unchanged. None means that all
            positions are tokens.

    Returns:
        The hidden state at each position, float [batch, length, width], where width is `projection` or else `units`.

    Reference: Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997; Gers et al., "Learning to Forget", 2000; the
    projection: Sak et al., "Long Short-Term Memory Based Recurrent Neural Network Architectures", 2014.
    """

    def __init__(self, units: int, reverse: bool = False, projection: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_arguments(PositiveInt, units=units)
        check_arguments(PositiveInt | None, projection=projection)
        self.units = units
        self.reverse = reverse
        self.projection = projection
        self.width = projection or units

    def build(self, inputs_shape: tuple) -> None:
        def initialise_bias(shape: tuple, dtype: Any = None) -> Tensor:
            """Initialises the biases of the forget gate to 1 and all others to 0 (Jozefowicz et al., 2015)."""
            is_forget = ops.equal(ops.arange(shape[0]) // self.units, 1)
            return ops.cast(is_forget, dtype)

        def initialise_recurrent_kernel(shape: tuple, dtype: Any = None) -> Tensor:
            """Initialises an orthogonal matrix in float32, because TensorFlow has no QR decomposition in bfloat16."""
            return ops.cast(keras.initializers.Orthogonal()(shape, "float32"), dtype)

        self.kernel = self.add_weight(shape=(inputs_shape[-1], 4 * self.units), name="kernel")
        self.recurrent_kernel = self.add_weight(
            shape=(self.width, 4 * self.units), initializer=initialise_recurrent_kernel, name="recurrent_kernel"
        )
        self.bias = self.add_weight(shape=(4 * self.units,), initializer=initialise_bias, name="bias")
        self.projection_kernel = None
        if self.projection:
            self.projection_kernel = self.add_weight(shape=(self.units, self.projection), name="projection_kernel")

    def call(self, inputs: Tensor, token_mask: Tensor | None = None) -> Tensor:
        return self.recur(self.gates(inputs), token_mask)

    def gates(self, inputs: Tensor) -> Tensor:
        """Returns the contributions of inputs to the gates, a linear map: float [..., d_in] --> [..., 4 units]."""
        return kernels.linear(inputs, self.kernel, self.bias)

    def recur(self, gates: Tensor, token_mask: Tensor | None = None) -> Tensor:
        """Returns the call's result, given the result of `gates`, float [batch, length, 4 units]."""
        batch, length, _ = ops.shape(gates)
        mask = ops.ones((batch, length), "bool") if token_mask is None else token_mask
        factors = [kernel for kernel in (self.projection_kernel, self.recurrent_kernel) if kernel is not None]
        return self.projected(kernels.lstm(gates, factors, mask, reverse=self.reverse))

    def projected(self, hidden: Tensor) -> Tensor:
        """Projects hidden states if the layer has a projection: float [..., units] --> [..., width]."""
        return hidden if self.projection_kernel is None else kernels.linear(hidden, self.projection_kernel, None)

    def compute_output_shape(self, inputs_shape: tuple, *_: Any) -> tuple:
        return (*inputs_shape[:-1], self.width)


@keras.saving.register_keras_serializable(package="t2t_keras")
class AttentiveLSTM(Layer):
    """An LSTM whose inputs are extended by attention to a memory.

    At each position, the hidden state of the previous position (zero at first) is the query. The resulting context is
    concatenated to the input.

    Args:
        units: width of the cell, and of the hidden state if it is not projected.
        d_attention: width of the attention's hidden layer.
        projection: as in `LSTM`.
        score: the attention, "additive" for `AdditiveAttention` or "multiplicative" for `MultiplicativeAttention`.

    Call arguments:
        inputs: float [batch, length, d_in].
        memory: float [batch, source_len, d_memory].
        bias: a `mask_bias`, [batch, 1, source_len], that hides positions of the memory.

    Returns:
        Hidden states, float [batch, length, width], and contexts, float [batch, length, d_memory].

    Reference: Wu et al., "Google's Neural Machine Translation System", 2016, section 3.
    """

    def __init__(
        self,
        units: int,
        d_attention: int,
        projection: int | None = None,
        score: Literal["additive", "multiplicative"] = "additive",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if score not in _ATTENTIONS:
            raise ValueError(f"`score` must be one of {', '.join(_ATTENTIONS)}, got {score!r}")
        self.units = units
        self.d_attention = d_attention
        self.projection = projection
        self.score = score
        self.attention = _ATTENTIONS[score](d_attention, name="attention", **part_arguments(self))
        self.lstm = LSTM(units, projection=projection, name="lstm", **part_arguments(self))

    def build(self, inputs_shape: tuple, memory_shape: tuple) -> None:
        self.d_in = inputs_shape[-1]
        self.attention.build((None, None, self.lstm.width), memory_shape)
        self.lstm.build((*inputs_shape[:-1], inputs_shape[-1] + memory_shape[-1]))

    def call(self, inputs: Tensor, memory: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.recur(self.gates(inputs), memory, bias)

    def gates(self, inputs: Tensor) -> Tensor:
        """Returns the contributions of inputs without contexts to the gates: float [..., d_in] --> [..., 4 units]."""
        return kernels.linear(inputs, ops.convert_to_tensor(self.lstm.kernel)[: self.d_in], self.lstm.bias)

    def context_gates(self, contexts: Tensor, width: int) -> Tensor:
        """Returns the contributions of contexts to the first gates: float [..., d_memory] --> [..., width]."""
        return kernels.linear(contexts, ops.convert_to_tensor(self.lstm.kernel)[self.d_in :, :width], None)

    def recur(self, gates: Tensor, memory: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns the call's result, given the result of `gates`, float [batch, length, 4 units]."""
        keys, width, cell_end = self.attention.keys(memory), self.lstm.width, self.lstm.width + self.units
        kernel = ops.convert_to_tensor(self.lstm.kernel)
        recurrent = ops.concatenate([kernel[self.d_in :], self.lstm.recurrent_kernel], axis=0)

        def read(state: Tensor) -> Tensor:
            hidden = ops.cast(state[:, :width], gates.dtype)
            context, _ = self.attention(hidden[:, None], memory, keys, bias)
            return ops.concatenate([context[:, 0], hidden], axis=-1)  # --> [batch, d_memory + width]

        def step(state: Tensor, rows: Tensor, x: Tensor) -> Tensor:
            hidden, cell = lstm_step(x, state[:, width:cell_end])
            parts = self.lstm.projected(hidden), cell, rows[:, : memory.shape[-1]]
            return ops.concatenate([ops.cast(part, "float32") for part in parts], axis=-1)

        def read_all(states: Tensor) -> Tensor:
            return ops.concatenate([states[..., cell_end:], _shift(states[..., :width])], axis=-1)

        start = ops.zeros((ops.shape(gates)[0], cell_end + memory.shape[-1]), "float32")
        states = kernels.recurrent_scan(read, step, start, gates, recurrent, read_all)
        return ops.cast(states[..., :width], gates.dtype), ops.cast(states[..., cell_end:], gates.dtype)

    def attended(self, hidden: Tensor, memory: Tensor, bias: Tensor) -> Tensor:
        """Returns the attention weights, float32 [batch, length, source_len], given the call's hidden states."""
        weights = self.attention.attention_weights(_shift(hidden), self.attention.keys(memory), bias)
        return ops.cast(weights, "float32")

    def compute_output_shape(self, inputs_shape: tuple, memory_shape: tuple, *_: Any) -> tuple[tuple, tuple]:
        return (*inputs_shape[:-1], self.lstm.width), (*inputs_shape[:-1], memory_shape[-1])


def _shift(hidden: Tensor) -> Tensor:
    """Returns the hidden state before each position, zero before the first: [batch, length, width]."""
    return ops.pad(hidden, ((0, 0), (1, 0), (0, 0)))[:, :-1]


class LSTMStep:
    """A built `LSTM` that computes one position, with its kernels cast to `dtype` once per search."""

    def __init__(self, layer: LSTM, dtype: str) -> None:
        self._bias = layer.bias
        projection = layer.projection_kernel
        self._projection = None if projection is None else ops.cast(projection, dtype)  # [units, width]
        self._kernel = ops.cast(layer.kernel, dtype)  # [d_in, 4 units]
        self._recurrent_kernel = ops.cast(layer.recurrent_kernel, dtype)  # [width, 4 units]

    def gates(self, inputs: Tensor) -> Tensor:
        """Returns the contributions of one position's inputs to the gates: float [..., d_in] --> [..., 4 units]."""
        return kernels.linear(inputs, self._kernel, self._bias)

    def __call__(self, gates: Tensor, state: LSTMState) -> LSTMState:
        """Returns the state after one position, given the result of `gates` and the state before."""
        hidden, cell = lstm_step(gates + kernels.linear(state.hidden, self._recurrent_kernel, None), state.cell)
        return LSTMState(hidden if self._projection is None else kernels.linear(hidden, self._projection, None), cell)
