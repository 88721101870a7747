"""The residual connection around every sub-layer."""

from collections.abc import Callable
from typing import Any

import keras

from t2t_keras import kernels
from t2t_keras.config.layer_settings import NormPosition
from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.layer import Layer
from t2t_keras.layers.normalization import LayerNormalization
from t2t_keras.layers.trainable_parts import part_arguments
from t2t_keras.tensor import Tensor
from t2t_keras.values import Rate, check_arguments


@keras.saving.register_keras_serializable(package="t2t_keras")
class Residual(Layer):
    """The "Add & Norm" of Figure 1 around a sub-layer (sections 3.1 and 5.4).

    Args:
        norm_position: "post" for LayerNorm(x + Dropout(Sublayer(x))), as in the paper, or "pre" for
            x + Dropout(Sublayer(LayerNorm(x))), as in T2T (tensor2tensor).
        dropout_rate: dropout on the sub-layer's output.
        epsilon: added to the variance in layer normalisation.

    Call arguments:
        inputs: float [batch, length, d_model].
        sublayer: a function from [batch, length, d_model] to the same.
        seed: int32 [2], for dropout; None draws a seed.

    Returns:
        float [batch, length, d_model].
    """

    def __init__(
        self,
        norm_position: NormPosition = "post",
        dropout_rate: float = 0.0,
        epsilon: float = 1e-6,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_arguments(NormPosition, norm_position=norm_position)
        check_arguments(Rate, dropout_rate=dropout_rate)
        self.norm_position = norm_position
        self.dropout_rate = dropout_rate
        self.epsilon = epsilon
        self.norm = LayerNormalization(epsilon, name="norm", **part_arguments(self))
        self.dropout = Dropout(dropout_rate, name="dropout", **part_arguments(self))

    def build(self, input_shape: tuple) -> None:
        self.norm.build(input_shape)

    def call(self, inputs: Tensor, sublayer: Callable[[Tensor], Tensor], seed: Tensor | None = None) -> Tensor:
        is_post = self.norm_position == "post"
        outputs = sublayer(inputs if is_post else self.norm(inputs))
        outputs = kernels.add(inputs, self.dropout(outputs, seed=seed))
        return self.norm(outputs) if is_post else outputs

    def compute_output_spec(self, inputs: Tensor, *_: Any, **__: Any) -> keras.KerasTensor:
        raise ValueError(
            "a functional model would neither train nor store the weights of `sublayer`; "
            "call a `Residual` within a layer or a model of your own"
        )
