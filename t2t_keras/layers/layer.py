"""Base classes of the layers, and checks of their arguments and inputs."""

import dataclasses
import inspect
import numbers
from collections.abc import Iterator
from typing import Any

import keras

from t2t_keras.config.layer_settings import FIELDS, LayerSettings

# Arguments that `__init__` passes on to Keras, whose `get_config` includes them.
_OF_KERAS = {"name", "trainable", "dtype", "autocast", "activity_regularizer"}


class Layer(keras.layers.Layer):
    """A Keras layer whose `get_config` reads the attributes named like the arguments of `__init__`.

    A subclass that overrides `get_config` adds the arguments for which there is no such attribute.

    The output has the shape of the first input, unless a subclass defines `compute_output_shape`. The first input's
    Keras mask, if any, is passed on.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

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
        names = set(_arguments(type(self))) - _OF_KERAS
        if type(self).get_config is not Layer.get_config:
            names = {name for name in names if hasattr(self, name)}
        config = super().get_config()
        for name in sorted(names):
            value = getattr(self, name)
            config |= dataclasses.asdict(value) if isinstance(value, LayerSettings) else {name: value}
        return config


class ConfiguredLayer(Layer):
    """A layer or a stack of Figure 1, configured by a `LayerSettings`.

    Args:
        settings: a `LayerSettings`, or a configuration that inherits its fields; None means its defaults.
        kwargs: individual fields of `LayerSettings`, which override `settings`; and the arguments of
            `keras.layers.Layer`.
    """

    def __init__(self, settings: LayerSettings | None = None, **kwargs: Any) -> None:
        changes = {name: kwargs.pop(name) for name in FIELDS & kwargs.keys()}
        super().__init__(**kwargs)
        self.settings = LayerSettings.of(settings, **changes)


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


def input_spec_of(ndim: int, input_shape: tuple, *, more: bool = False) -> keras.layers.InputSpec:
    """Specifies the inputs of a layer that is built for a shape: the number of axes and the width of the last one.

    Args:
        ndim: number of axes.
        input_shape: shape of the input for which the layer is built.
        more: whether inputs may have more axes than `ndim`.

    Raises:
        ValueError: `input_shape` itself has a different number of axes.
    """
    if len(input_shape) < ndim or (len(input_shape) > ndim and not more):
        raise ValueError(f"inputs must have {ndim} axes{' or more' if more else ''}, got the shape {input_shape}")
    return keras.layers.InputSpec(**{"min_ndim" if more else "ndim": ndim}, axes={-1: input_shape[-1]})


def check_at_least_one(**arguments: int | None) -> None:
    """Raises a ValueError that names the first argument that is not an integer or is below 1; None passes."""
    for name, value in arguments.items():
        if value is not None and not isinstance(value, numbers.Integral):
            raise ValueError(f"`{name}` must be a whole number, got {value!r}")
        if value is not None and value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}")
