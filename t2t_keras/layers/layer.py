"""What all layers here share."""

import dataclasses
import inspect
from typing import Any

import keras


class Layer(keras.layers.Layer):
    """A Keras layer that is stored from attributes with the names of its `__init__`'s arguments.

    Its result has the shape of its first input, unless a subclass has its own `compute_output_shape`.
    """

    def _shape_of_first(self, inputs_shape: Any = None, *_: Any, **named_shapes: Any) -> Any:
        # Keras's summary names shapes as `build` does, the first input's first.
        return next(iter(named_shapes.values())) if inputs_shape is None else inputs_shape

    compute_output_shape: Any = _shape_of_first  # of any signature in a subclass

    def get_config(self) -> dict[str, Any]:
        _, *arguments = inspect.signature(type(self).__init__).parameters.values()  # all but self
        values = {each.name: getattr(self, each.name) for each in arguments if each.kind is not each.VAR_KEYWORD}
        plain = {name: dataclasses.asdict(each) if _is_settings(each) else each for name, each in values.items()}
        return {**super().get_config(), **plain}


def _is_settings(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def check_at_least_one(**arguments: int | None) -> None:
    """Raises a ValueError that names the first argument below 1; None passes."""
    for name, value in arguments.items():
        if value is not None and value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}")
