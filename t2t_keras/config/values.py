"""Values of settings: parsed from text, and checked against the annotations of their fields."""

import math
import types
import typing
from typing import Any, Literal

from t2t_keras.errors import InputError


def parsed(name: str, expected: Any, text: str) -> Any:
    """Parses a value by its field's annotation: bool, int, float, str, a `Literal`, or one of these or None.

    "none" and "null" stand for None where it is allowed; `name` is for messages.

    Raises:
        InputError: the text is not a valid value.
    """
    if isinstance(expected, types.UnionType) and text.lower() in ("none", "null"):
        return None
    if expected is bool:
        if text.lower() not in ("true", "false", "1", "0"):
            raise InputError(f"{name} must be true or false, got {text!r}")
        return text.lower() in ("true", "1")
    for number in (int, float):
        if number in (expected, *typing.get_args(expected)):
            try:
                value = number(text)
            except ValueError:
                raise InputError(f"{name} must be of type {number.__name__}, got {text!r}") from None
            return checked(name, expected, value)
    return checked(name, expected, text)


def checked(name: str, expected: Any, value: Any) -> Any:
    """Returns the value if the annotation allows it, an int as float if one is expected; else raises InputError."""
    if typing.get_origin(expected) is Literal:
        if value not in typing.get_args(expected):
            valid = ", ".join(map(str, typing.get_args(expected)))
            raise InputError(f"{name} must be one of {valid}; got {value!r}")
        return value
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{name} must be a finite number, got {value}")
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        wanted = getattr(expected, "__name__", str(expected))
        raise InputError(f"{name} must be of type {wanted}, got {value!r}")
    return value
