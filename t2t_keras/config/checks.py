"""Validation of settings; each check raises InputError with the name of the setting."""

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
    """Checks every field against its annotation, and stores the values as their JSON form has them.

    NumPy numbers and arrays become Python's, and lists become tuples.
    """
    kind: Any = type(config)
    hints = _type_hints(kind)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        # A configuration must be equal to the one that is read back from its JSON form.
        object.__setattr__(config, field.name, checked(f"{config.section}.{field.name}", hints[field.name], value))


def check_positive(config: Any, *names: str) -> None:
    """Checks that fields are positive; None passes."""
    for name in names:
        value = getattr(config, name)
        if value is not None and value <= 0:
            raise InputError(f"{config.section}.{name} must be positive, got {value}")


def check_not_negative(config: Any, *names: str) -> None:
    """Checks that fields are not negative."""
    for name in names:
        if getattr(config, name) < 0:
            raise InputError(f"{config.section}.{name} must not be negative, got {getattr(config, name)}")


def check_seed(config: Any) -> None:
    """Checks that NumPy accepts the seed."""
    if not 0 <= config.seed < 2**32:
        raise InputError(f"{config.section}.seed must be in [0, 2 ** 32), got {config.seed}")


def check_rate(config: Any, *names: str) -> None:
    """Checks that fields are in [0, 1)."""
    for name in names:
        if not 0 <= getattr(config, name) < 1:
            raise InputError(f"{config.section}.{name} must be in [0, 1), got {getattr(config, name)}")
