"""What all layers here share."""

import dataclasses
import inspect
from collections.abc import Iterator
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

    def stateless_call(
        self,
        trainable_variables: list[Any],
        non_trainable_variables: list[Any],
        *args: Any,
        return_losses: bool = False,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Keras's, by `__call__` instead of `call`, which hands `training` on to the layers within."""
        variables = [*self.trainable_variables, *self.non_trainable_variables]
        mapping = list(zip(variables, [*trainable_variables, *non_trainable_variables], strict=True))
        with keras.StatelessScope(state_mapping=mapping, collect_losses=return_losses) as scope:
            outputs = self(*args, **kwargs)
            losses = (self.losses,) if return_losses else ()
        return outputs, [scope.get_current_value(each) for each in self.non_trainable_variables], *losses

    def get_config(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in _arguments(type(self))}
        plain = {name: dataclasses.asdict(each) if _is_settings(each) else each for name, each in values.items()}
        return {**super().get_config(), **plain}


def _arguments(kind: type) -> Iterator[str]:
    """The names of the arguments that `__init__` takes, with those that it hands on to the class above as `kwargs`."""
    for each in (each for each in kind.__mro__ if "__init__" in vars(each)):
        if each is Layer or not issubclass(each, Layer):
            return
        _, *arguments = inspect.signature(each.__init__).parameters.values()  # all but self
        yield from (argument.name for argument in arguments if argument.kind is not argument.VAR_KEYWORD)
        if not any(argument.kind is argument.VAR_KEYWORD for argument in arguments):
            return


def _is_settings(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def check_at_least_one(**arguments: int | None) -> None:
    """Raises a ValueError that names the first argument below 1; None passes."""
    for name, value in arguments.items():
        if value is not None and value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}")
