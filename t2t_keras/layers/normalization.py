"""Layer normalisation."""

from typing import Any

import keras

from t2t_keras import kernels
from t2t_keras.layers.layer import Layer, input_spec_of
from t2t_keras.layers.weight_options import options_for, weight_option
from t2t_keras.tensor import Tensor
from t2t_keras.values import PositiveFloat, check_arguments


@keras.saving.register_keras_serializable(package="t2t_keras")
class LayerNormalization(Layer):
    """Normalises each position over d_model in float32, regardless of the compute dtype (Ba et al., 2016; section 3.1).

    Args:
        epsilon: added to the variance.
        scale_initializer: Keras initializer of the scale (Keras's gamma), its name or a function.
        offset_initializer: initializer of the offset (Keras's beta).
        scale_regularizer: Keras regularizer of the scale; None means none.
        offset_regularizer: regularizer of the offset.
        scale_constraint: Keras constraint on the scale; None means none.
        offset_constraint: constraint on the offset.

    Call arguments:
        inputs: float [..., d_model].

    Returns:
        float [..., d_model], in the compute dtype.
    """

    def __init__(
        self,
        epsilon: float = 1e-6,
        scale_initializer: Any = "ones",
        offset_initializer: Any = "zeros",
        scale_regularizer: Any = None,
        offset_regularizer: Any = None,
        scale_constraint: Any = None,
        offset_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_arguments(PositiveFloat, epsilon=epsilon)
        self.epsilon = epsilon
        self.scale_initializer = weight_option("scale_initializer", scale_initializer)
        self.offset_initializer = weight_option("offset_initializer", offset_initializer)
        self.scale_regularizer = weight_option("scale_regularizer", scale_regularizer)
        self.offset_regularizer = weight_option("offset_regularizer", offset_regularizer)
        self.scale_constraint = weight_option("scale_constraint", scale_constraint)
        self.offset_constraint = weight_option("offset_constraint", offset_constraint)

    def build(self, input_shape: tuple) -> None:
        self.input_spec = input_spec_of(1, input_shape, more=True)
        # The arithmetic is in float32; autocast would first round the weights to the compute dtype.
        arguments: dict[str, Any] = {"shape": (input_shape[-1],), "dtype": "float32", "autocast": False}
        self.scale = self.add_weight(name="scale", **arguments, **options_for(self, "scale"))
        self.offset = self.add_weight(name="offset", **arguments, **options_for(self, "offset"))

    def call(self, inputs: Tensor) -> Tensor:
        return kernels.layer_normalization(inputs, self.scale, self.offset, self.epsilon)
