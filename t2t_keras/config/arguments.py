"""Checks of arguments; each raises a ValueError that names the first wrong argument and says what it takes."""

import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any


def check_sizes(**arguments: Any) -> None:
    """Checks that arguments are whole numbers of at least 1."""
    _check(arguments, lambda value: _is_whole(value) and value >= 1, "a whole number of at least 1")


def check_optional_sizes(**arguments: Any) -> None:
    """Checks that arguments are None or whole numbers of at least 1."""
    given = {name: value for name, value in arguments.items() if value is not None}
    _check(given, lambda value: _is_whole(value) and value >= 1, "None or a whole number of at least 1")


def check_counts(**arguments: Any) -> None:
    """Checks that arguments are whole numbers of at least 0."""
    _check(arguments, lambda value: _is_whole(value) and value >= 0, "a whole number of at least 0")


def check_rates(**arguments: Any) -> None:
    """Checks that arguments are in [0, 1)."""
    _check(arguments, lambda value: _is_number(value) and 0 <= value < 1, "a number in [0, 1)")


def check_positive_numbers(**arguments: Any) -> None:
    """Checks that arguments are finite numbers above 0."""
    _check(arguments, lambda value: _is_number(value) and value > 0, "a finite number above 0")


def check_numbers(**arguments: Any) -> None:
    """Checks that arguments are finite numbers of at least 0."""
    _check(arguments, lambda value: _is_number(value) and value >= 0, "a finite number of at least 0")


def check_optional_numbers(**arguments: Any) -> None:
    """Checks that arguments are None or finite numbers of at least 0."""
    given = {name: value for name, value in arguments.items() if value is not None}
    _check(given, lambda value: _is_number(value) and value >= 0, "None or a finite number of at least 0")


def check_flags(**arguments: Any) -> None:
    """Checks that arguments are True or False."""
    _check(arguments, lambda value: isinstance(_python(value), bool), "True or False")


def check_choices(choices: Sequence[str], **arguments: Any) -> None:
    """Checks that arguments are among some words."""
    valid = f"one of {', '.join(map(repr, choices))}"
    _check(arguments, lambda value: isinstance(value, str) and value in choices, valid)


def _check(arguments: dict[str, Any], is_valid: Callable[[Any], bool], valid: str) -> None:
    for name, value in arguments.items():
        if not is_valid(value):
            raise ValueError(f"`{name}` must be {valid}, got {value!r}")


def _python(value: Any) -> Any:
    """Returns NumPy's numbers as those of Python, without an import of NumPy."""
    return value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
