"""Parsing of setting values from text, and validation against the annotations of their fields."""

import math
import sys
import types
import typing
from typing import Any, Literal

from t2t_keras.errors import InputError


def parsed(name: str, expected: Any, text: str) -> Any:
    """Parses a value according to its field's annotation.

    Args:
        name: the setting's name, for messages.
        expected: the annotation: bool, int, float, str, a `Literal`, a tuple[X, ...] of one of these, or one of these
            with None as an alternative.
        text: the text to parse. Items of a tuple are separated by commas, and an empty text is an empty tuple. "none"
            and "null" mean None where it is allowed.

    Raises:
        InputError: the text is not a valid value.
    """
    if _is_union(expected) and text.lower() in ("none", "null"):
        return None
    if typing.get_origin(_remove_none(expected)) is tuple:
        kind = typing.get_args(_remove_none(expected))[0]
        return tuple(parsed(name, kind, part.strip()) for part in text.split(",")) if text else ()
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
    """Returns a value after checking it against an annotation.

    An int becomes a float where one is expected, a list becomes a tuple, and NumPy numbers and arrays become Python's.

    Raises:
        InputError: the annotation does not allow the value, or it is not finite.
    """
    value = value.tolist() if hasattr(value, "tolist") else value
    if _is_union(expected) and value is None:
        return None
    expected = _remove_none(expected)
    if typing.get_origin(expected) is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(f"{name} must be a list, got {value!r}")
        return tuple(checked(name, typing.get_args(expected)[0], item) for item in value)
    if typing.get_origin(expected) is Literal:
        if value not in typing.get_args(expected):
            valid = ", ".join(map(str, typing.get_args(expected)))
            raise InputError(f"{name} must be one of {valid}; got {value!r}")
        return value
    if float in (expected, *typing.get_args(expected)) and type(value) is int:
        value = float(value) if abs(value) <= sys.float_info.max else math.inf
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{name} must be a finite number, got {value}")
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        type_name = getattr(expected, "__name__", str(expected))
        raise InputError(f"{name} must be of type {type_name}, got {value!r}")
    return value


def _is_union(expected: Any) -> bool:
    return isinstance(expected, types.UnionType) or typing.get_origin(expected) is typing.Union


def _remove_none(expected: Any) -> Any:
    """Removes the None alternative from a `Literal` or a tuple; returns any other annotation unchanged."""
    if not _is_union(expected):
        return expected
    kinds = [kind for kind in typing.get_args(expected) if kind is not type(None)]
    return kinds[0] if typing.get_origin(kinds[0]) in (Literal, tuple) else expected
