"""The position-wise feed-forward network."""

from collections.abc import Callable
from typing import Any

import keras

from t2t_keras import kernels
from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.layer import input_spec_of
from t2t_keras.layers.trainable_parts import part_arguments
from t2t_keras.layers.weight_options import WeightedLayer
from t2t_keras.tensor import Tensor
from t2t_keras.values import PositiveInt, Rate, check_arguments


@keras.saving.register_keras_serializable(package="t2t_keras")
class FeedForward(WeightedLayer):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 at each position (section 3.3, equation 2).

    Args:
        d_ff: inner width.
        dropout_rate: dropout on the inner activations; not used in the paper, 0.1 in T2T (tensor2tensor).
        activation: name of a Keras activation, or a function; "relu" is the paper's max(0, x), None is linear.
        kwargs: the options of the kernels and biases, such as `kernel_regularizer`, as in `WeightedLayer`; and the
            arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: float [batch, length, d_model].
        seed: int32 [2], for dropout; None draws a seed.
        token_rows: int32 [tokens], from `token_rows`: the rows to compute; the others become zeros. None computes all.

    Returns:
        float [batch, length, d_model].

    Example:
        >>> FeedForward(d_ff=16)(np.ones([2, 5, 8], "float32")).shape
        TensorShape([2, 5, 8])
    """

    def __init__(
        self,
        d_ff: int,
        dropout_rate: float = 0.0,
        activation: str | Callable[..., Any] | None = "relu",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_arguments(PositiveInt, d_ff=d_ff)
        check_arguments(Rate, dropout_rate=dropout_rate)
        self.d_ff = d_ff
        self.dropout_rate = dropout_rate
        self.activation = activation
        try:
            self.activate = keras.activations.get(activation)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"`activation` must be a function or the name of a Keras activation, got {activation!r}"
            ) from error
        self.dropout = Dropout(dropout_rate, name="dropout", **part_arguments(self))

    def build(self, input_shape: tuple) -> None:
        self.input_spec = input_spec_of(2, input_shape, more=True)
        d_model = input_shape[-1]
        self.inner_kernel = self.add_kernel("inner_kernel", (d_model, self.d_ff))
        self.inner_bias = self.add_bias("inner_bias", (self.d_ff,))
        self.outer_kernel = self.add_kernel("outer_kernel", (self.d_ff, d_model))
        self.outer_bias = self.add_bias("outer_bias", (d_model,))

    def call(self, inputs: Tensor, seed: Tensor | None = None, token_rows: Tensor | None = None) -> Tensor:
        x = inputs if token_rows is None else kernels.take_rows(inputs, token_rows)  # --> [tokens, d_model]
        inner = self.activate(kernels.linear(x, self.inner_kernel, self.inner_bias))  # --> [..., d_ff]
        inner = self.dropout(inner, seed=seed)
        outputs = kernels.linear(inner, self.outer_kernel, self.outer_bias)  # --> [..., d_model]
        if token_rows is None:
            return outputs
        return kernels.put_rows(outputs, token_rows, inputs)  # --> [batch, length, d_model]
