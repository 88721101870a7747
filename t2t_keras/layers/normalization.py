"""Layer normalisation."""

from typing import Any

import keras

from t2t_keras import kernels
from t2t_keras.config.arguments import check_positive_numbers
from t2t_keras.layers.layer import Layer, input_spec_of
from t2t_keras.tensor import Tensor


@keras.saving.register_keras_serializable(package="t2t_keras")
class LayerNormalization(Layer):
    """Normalises each position over d_model in float32, whatever the compute dtype (Ba et al., 2016; section 3.1).

    Args:
        epsilon: added to the variance.

    Call arguments:
        inputs: float [..., d_model].

    Returns:
        float [..., d_model], in the compute dtype.
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive_numbers(epsilon=epsilon)
        self.epsilon = epsilon

    def build(self, input_shape: tuple) -> None:
        self.input_spec = input_spec_of(1, input_shape, more=True)
        width = (input_shape[-1],)
        # The arithmetic is in float32; autocast would first round the weights to the compute dtype.
        arguments: dict[str, Any] = {"shape": width, "dtype": "float32", "autocast": False}
        self.scale = self.add_weight(initializer="ones", name="scale", **arguments)
        self.offset = self.add_weight(initializer="zeros", name="offset", **arguments)

    def call(self, inputs: Tensor) -> Tensor:
        return kernels.layer_normalization(inputs, self.scale, self.offset, self.epsilon)
