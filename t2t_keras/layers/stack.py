"""The base class of the encoder and the decoder."""

from typing import Any, ClassVar

from t2t_keras.config.layer_settings import LayerSettings
from t2t_keras.layers.layer import input_spec_of
from t2t_keras.layers.normalization import LayerNormalization
from t2t_keras.layers.trainable_parts import part_arguments
from t2t_keras.layers.weight_options import ConfiguredLayer
from t2t_keras.tensor import Tensor
from t2t_keras.values import PositiveInt, check_arguments


class Stack(ConfiguredLayer):
    """N identical layers (section 3.1), followed by a final normalisation if `norm_position` is "pre".

    Args:
        num_layers: N, at least 1.
        settings, kwargs: as in `EncoderLayer`; used for every layer.
    """

    layer_class: ClassVar[type[Any]]

    def __init__(self, num_layers: int, settings: LayerSettings | None = None, **kwargs: Any) -> None:
        super().__init__(settings, **kwargs)
        check_arguments(PositiveInt, num_layers=num_layers)
        self.num_layers = num_layers
        settings, shared = self.settings, part_arguments(self)
        options = {**shared, **self.weight_options}
        self.layers = [self.layer_class(settings, name=f"layer_{i}", **options) for i in range(num_layers)]
        self.final_norm = None
        if settings.norm_position == "pre":
            self.final_norm = LayerNormalization(settings.layer_norm_epsilon, name="final_norm", **shared)

    def build_layers(self, inputs_shape: tuple, *shapes: tuple) -> None:
        """Builds the layers for inputs of these shapes, and the final normalisation if there is one."""
        self.input_spec = input_spec_of(3, inputs_shape)
        for layer in self.layers:
            layer.build(inputs_shape, *shapes)
        if self.final_norm is not None:
            self.final_norm.build(inputs_shape)

    def apply_final_norm(self, x: Tensor) -> Tensor:
        """Applies the final normalisation, if there is one, to the last layer's output, float [..., d_model]."""
        return x if self.final_norm is None else self.final_norm(x)
