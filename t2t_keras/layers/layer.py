"""Base classes of the layers, and checks of their arguments and inputs."""

import inspect
import types
from collections.abc import Iterator
from typing import Any, NoReturn, Self

import keras
import numpy as np

from t2t_keras.config.layer_settings import LayerSettings
from t2t_keras.layers.trainable_parts import ENTRY, restore_trainable, trainable_parts

# Arguments that `__init__` passes on to Keras, whose `get_config` includes them.
_KERAS_ARGUMENTS = {"name", "trainable", "dtype", "autocast", "activity_regularizer"}


class Layer(keras.layers.Layer):
    """A Keras layer whose `get_config` reads the attributes named like the arguments of `__init__`.

    A subclass that overrides `get_config` adds the arguments for which there is no such attribute.

    The output has the shape of the first input, unless a subclass defines `compute_output_shape`. The first input's
    Keras mask, if any, is passed on. The configuration records which parts of the layer are frozen.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the layer as Keras does; raises a ValueError that names an input given as a list of numbers."""
        for name, value in zip(self.call_signature_parameters, args, strict=False):
            if isinstance(value, list | tuple) and _contains_numbers(value):
                raise ValueError(f"`{name}` must be a tensor or an array, got a {type(value).__name__}")
        return super().__call__(*args, **kwargs)

    def _shape_of_first(self, inputs_shape: Any = None, *_: Any, **named_shapes: Any) -> Any:
        # Keras's `summary` passes the shapes by name, in the order of `build`'s arguments.
        return next(iter(named_shapes.values())) if inputs_shape is None else inputs_shape

    compute_output_shape: Any = _shape_of_first  # Any, because subclasses have other signatures

    def stateless_call(
        self,
        trainable_variables: list[Any],
        non_trainable_variables: list[Any],
        *args: Any,
        return_losses: bool = False,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Like Keras's, but uses `__call__` instead of `call`, so that `training` reaches nested layers."""
        if not self.built:
            raise ValueError(f"the layer {self.name!r} is not built, so it has no variables yet")
        mapping: list[tuple[Any, Any]] = []
        for kind, values in (("trainable", trainable_variables), ("non_trainable", non_trainable_variables)):
            variables = getattr(self, f"{kind}_variables")
            if len(variables) != len(values):
                raise ValueError(f"`{kind}_variables` must be the {len(variables)} of {self.name!r}, got {len(values)}")
            mapping += zip(variables, values, strict=True)
        with keras.StatelessScope(state_mapping=mapping, collect_losses=return_losses) as scope:
            outputs = self(*args, **kwargs)
            losses = (self.losses,) if return_losses else ()
        return outputs, [scope.get_current_value(each) for each in self.non_trainable_variables], *losses

    def get_config(self) -> dict[str, Any]:
        names = set(_arguments(type(self))) - _KERAS_ARGUMENTS
        if type(self).get_config is not Layer.get_config:
            names = {name for name in names if hasattr(self, name)}
        config = super().get_config()
        for name in sorted(names):
            value = getattr(self, name)
            values = value.fields if isinstance(value, LayerSettings) else {name: value}
            config |= {name: _serialized(value) for name, value in values.items()}
        return {**config, **trainable_parts(self)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        layer = super().from_config({name: value for name, value in config.items() if name != ENTRY})
        restore_trainable(layer, config.get(ENTRY, {}))
        return layer

    @property
    def enable_lora(self) -> NoReturn:
        """Not available: raises an AttributeError, so that Keras skips the layer when it enables LoRA in a model."""
        raise AttributeError(
            f"{type(self).__name__} has no `enable_lora`: Keras has LoRA only in its own layers; freeze parts instead, "
            "by `layer.trainable = False`"
        )

    def quantize(self, *_: Any, **__: Any) -> None:
        """Raises a NotImplementedError, because Keras quantizes only its own layers."""
        raise NotImplementedError(
            f"Keras has no quantized version of {type(self).__name__}; to translate in 8 bits, use "
            "launch.translate --engine=ctranslate2 --compute_type=int8"
        )


def _arguments(kind: type) -> Iterator[str]:
    """Yields the names of the arguments of `__init__`, including those that it passes to its base class as `kwargs`."""
    for each in (each for each in kind.__mro__ if "__init__" in vars(each)):
        if each is Layer or not issubclass(each, Layer):
            return
        _, *arguments = inspect.signature(each.__init__).parameters.values()  # without self
        variadic = [each for each in arguments if each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
        yield from (argument.name for argument in arguments if argument not in variadic)
        if not variadic:
            return


def input_spec_of(ndim: int, input_shape: tuple, *, more: bool = False, name: str = "inputs") -> keras.layers.InputSpec:
    """Specifies the inputs of a layer that is built for a shape: the number of axes and the width of the last one.

    Args:
        ndim: number of axes.
        input_shape: shape of the input for which the layer is built.
        more: whether inputs may have more axes than `ndim`.
        name: name of the argument, for messages.

    Raises:
        ValueError: `input_shape` itself has a different number of axes.
    """
    if len(input_shape) < ndim or (len(input_shape) > ndim and not more):
        raise ValueError(f"`{name}` must have {ndim} axes{' or more' if more else ''}, got the shape {input_shape}")
    return keras.layers.InputSpec(**{"min_ndim" if more else "ndim": ndim}, axes={-1: input_shape[-1]})


def _serialized(value: Any) -> Any:
    """Converts a value of a configuration to one that JSON can store; Keras serializes objects and functions."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, types.FunctionType):
        return keras.activations.serialize(value)  # the name of one of Keras's functions
    return keras.saving.serialize_keras_object(value) if callable(value) else value


def _contains_numbers(value: Any) -> bool:
    """Returns whether a nested list contains numbers rather than tensors, judging by its first item."""
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return isinstance(value, bool | int | float)
