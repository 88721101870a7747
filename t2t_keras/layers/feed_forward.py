"""The position-wise feed-forward network."""

from typing import Any

import keras

from t2t_keras import kernels
from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.layer import Layer, check_at_least_one, input_spec_of
from t2t_keras.tensor import Tensor


@keras.saving.register_keras_serializable(package="t2t_keras")
class FeedForward(Layer):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 at each position (section 3.3, equation 2).

    Args:
        d_ff: inner width.
        dropout_rate: dropout on the inner activations; not used in the paper, 0.1 in T2T.
        activation: name of a Keras activation; "relu" is the paper's max(0, x).

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

    def __init__(self, d_ff: int, dropout_rate: float = 0.0, activation: str = "relu", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_at_least_one(d_ff=d_ff)
        self.d_ff = d_ff
        self.dropout_rate = dropout_rate
        self.activation = activation
        self.activate = keras.activations.get(activation)
        self.dropout = Dropout(dropout_rate, name="dropout", dtype=self.dtype_policy)

    def build(self, input_shape: tuple) -> None:
        self.input_spec = input_spec_of(2, input_shape, more=True)
        d_model = input_shape[-1]
        self.inner_kernel = self.add_weight(
            shape=(d_model, self.d_ff), initializer="glorot_uniform", name="inner_kernel"
        )
        self.inner_bias = self.add_weight(shape=(self.d_ff,), initializer="zeros", name="inner_bias")
        self.outer_kernel = self.add_weight(
            shape=(self.d_ff, d_model), initializer="glorot_uniform", name="outer_kernel"
        )
        self.outer_bias = self.add_weight(shape=(d_model,), initializer="zeros", name="outer_bias")

    def call(self, inputs: Tensor, seed: Tensor | None = None, token_rows: Tensor | None = None) -> Tensor:
        x = inputs if token_rows is None else kernels.take_rows(inputs, token_rows)  # --> [tokens, d_model]
        inner = self.activate(kernels.linear(x, self.inner_kernel, self.inner_bias))  # --> [..., d_ff]
        inner = self.dropout(inner, seed=seed)
        outputs = kernels.linear(inner, self.outer_kernel, self.outer_bias)  # --> [..., d_model]
        if token_rows is None:
            return outputs
        return kernels.put_rows(outputs, token_rows, inputs)  # --> [batch, length, d_model]
