"""What all layers here share."""

import dataclasses
import inspect
import numbers
from collections.abc import Iterator
from typing import Any

import keras

from t2t_keras.config.layer_settings import FIELDS, LayerSettings

# What `__init__` hands on to Keras, which stores it itself.
_OF_KERAS = {"name", "trainable", "dtype", "autocast", "activity_regularizer"}


class Layer(keras.layers.Layer):
    """A Keras layer that is stored from attributes with the names of its `__init__`'s arguments.

    Its result has the shape of its first input, unless a subclass has its own `compute_output_shape`, and that input's
    Keras mask, if it has one. A subclass with a `get_config` of its own stores there what has no such attribute.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def _shape_of_first(self, inputs_shape: Any = None, *_: Any, **named_shapes: Any) -> Any:
        # Keras's summary names shapes as `build` does, the first input's first.
        return next(iter(named_shapes.values())) if inputs_shape is None else inputs_shape

    compute_output_shape: Any = _shape_of_first  # of any signature in a subclass

    def stateless_call(
        self,
        trainable_variables: list[Any],
        non_trainable_variables: list[Any],
        *args: Any,
        return_losses: bool = False,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Keras's, by `__call__` instead of `call`, which hands `training` on to the layers within."""
        if not self.built:
            raise ValueError(f"the layer {self.name!r} is not built, so that it has no variables yet")
        mapping: list[tuple[Any, Any]] = []
        for kind, given in (("trainable", trainable_variables), ("non_trainable", non_trainable_variables)):
            own = getattr(self, f"{kind}_variables")
            if len(own) != len(given):
                raise ValueError(f"`{kind}_variables` must be the {len(own)} of {self.name!r}, got {len(given)}")
            mapping += zip(own, given, strict=True)
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
    """A layer or a stack of Figure 1.

    Args:
        settings: a `LayerSettings`, or a configuration that inherits its fields; None means its defaults.
        kwargs: fields of `LayerSettings` by name, in place of those of `settings`; and the arguments of a Keras layer.
    """

    def __init__(self, settings: LayerSettings | None = None, **kwargs: Any) -> None:
        changes = {name: kwargs.pop(name) for name in FIELDS & kwargs.keys()}
        super().__init__(**kwargs)
        self.settings = LayerSettings.of(settings, **changes)


def _arguments(kind: type) -> Iterator[str]:
    """The names of the arguments that `__init__` takes, with those that it hands on to the class above as `kwargs`."""
    for each in (each for each in kind.__mro__ if "__init__" in vars(each)):
        if each is Layer or not issubclass(each, Layer):
            return
        _, *arguments = inspect.signature(each.__init__).parameters.values()  # all but self
        starred = [each for each in arguments if each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
        yield from (argument.name for argument in arguments if argument not in starred)
        if not starred:
            return


def takes(ndim: int, input_shape: tuple, *, more: bool = False) -> keras.layers.InputSpec:
    """What a layer that is built for a shape takes from then on: so many axes, or more, and the last one as wide.

    A ValueError says that the shape itself has another number of axes.
    """
    if len(input_shape) < ndim or (len(input_shape) > ndim and not more):
        raise ValueError(f"inputs must have {ndim} axes{' or more' if more else ''}, got the shape {input_shape}")
    return keras.layers.InputSpec(**{"min_ndim" if more else "ndim": ndim}, axes={-1: input_shape[-1]})


def check_at_least_one(**arguments: int | None) -> None:
    """Raises a ValueError that names the first argument that is no whole number, or below 1; None passes."""
    for name, value in arguments.items():
        if value is not None and not isinstance(value, numbers.Integral):
            raise ValueError(f"`{name}` must be a whole number, got {value!r}")
        if value is not None and value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}")
