"""Checks of the arguments of layers; each raises a ValueError that names the first wrong argument and what is valid."""

from collections.abc import Sequence
from typing import Any

from t2t_keras.errors import InputError
from t2t_keras.values import NonNegativeFloat, PositiveFloat, PositiveInt, Rate, checked


def check_sizes(**arguments: Any) -> None:
    """Checks that arguments are whole numbers of at least 1."""
    _check(PositiveInt, arguments)


def check_optional_sizes(**arguments: Any) -> None:
    """Checks that arguments are None or whole numbers of at least 1."""
    _check(PositiveInt | None, arguments)


def check_rates(**arguments: Any) -> None:
    """Checks that arguments are in [0, 1)."""
    _check(Rate, arguments)


def check_positive_numbers(**arguments: Any) -> None:
    """Checks that arguments are finite numbers above 0."""
    _check(PositiveFloat, arguments)


def check_numbers(**arguments: Any) -> None:
    """Checks that arguments are finite numbers of at least 0."""
    _check(NonNegativeFloat, arguments)


def check_optional_numbers(**arguments: Any) -> None:
    """Checks that arguments are None or finite numbers of at least 0."""
    _check(NonNegativeFloat | None, arguments)


def check_flags(**arguments: Any) -> None:
    """Checks that arguments are True or False."""
    _check(bool, arguments)


def check_choices(choices: Sequence[str], **arguments: Any) -> None:
    """Checks that arguments are among some words."""
    for name, value in arguments.items():
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"`{name}` must be one of {', '.join(map(repr, choices))}, got {value!r}")


def _check(annotation: Any, arguments: dict[str, Any]) -> None:
    for name, value in arguments.items():
        try:
            checked(f"`{name}`", annotation, value)
        except InputError as error:  # an error of a program, not of its user
            raise ValueError(str(error)) from None
