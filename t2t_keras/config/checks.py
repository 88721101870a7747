"""Checks of the values of settings."""

import dataclasses
import functools
import typing
from typing import Any

from t2t_keras.config.values import checked
from t2t_keras.errors import InputError


@functools.cache
def _type_hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def check_types(config: Any) -> None:
    """Refuses fields whose values their annotations do not allow; NumPy's numbers and arrays pass for Python's."""
    kind: Any = type(config)
    hints = _type_hints(kind)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        # As JSON has it: Python's numbers, and tuples for lists.
        object.__setattr__(config, field.name, checked(f"{config.section}.{field.name}", hints[field.name], value))


def check_positive(config: Any, *names: str) -> None:
    """Refuses fields that are not above 0; None passes."""
    for name in names:
        value = getattr(config, name)
        if value is not None and value <= 0:
            raise InputError(f"{config.section}.{name} must be positive, got {value}")


def check_not_negative(config: Any, *names: str) -> None:
    """Refuses fields below 0."""
    for name in names:
        if getattr(config, name) < 0:
            raise InputError(f"{config.section}.{name} must not be negative, got {getattr(config, name)}")


def check_seed(config: Any) -> None:
    """Refuses a seed that NumPy does not accept."""
    if not 0 <= config.seed < 2**32:
        raise InputError(f"{config.section}.seed must be in [0, 2 ** 32), got {config.seed}")


def check_rate(config: Any, *names: str) -> None:
    """Refuses fields outside [0, 1)."""
    for name in names:
        if not 0 <= getattr(config, name) < 1:
            raise InputError(f"{config.section}.{name} must be in [0, 1), got {getattr(config, name)}")
