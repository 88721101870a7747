"""Values of settings and arguments: the numbers that are valid, parsing from text, and checks against annotations."""

import contextlib
import dataclasses
import functools
import math
import operator
import sys
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

from t2t_keras.errors import InputError


class Bounds(NamedTuple):
    """An annotation of a number that says which values are valid, as in `Annotated[int, Bounds(...)]`.

    Attributes:
        valid: the valid numbers in words, for messages.
        contains: returns whether a number is valid.
    """

    valid: str
    contains: Callable[[float], bool]


def at_least(number: int) -> Bounds:
    """Returns the bounds of whole numbers that are not smaller than `number`."""
    return Bounds(f"a whole number of at least {number}", lambda value: value >= number)


def between(lowest: float, highest: float) -> Bounds:
    """Returns the bounds of numbers from `lowest` to `highest`."""
    return Bounds(f"a number from {lowest} to {highest}", lambda value: lowest <= value <= highest)


PositiveInt = Annotated[int, at_least(1)]
NonNegativeInt = Annotated[int, at_least(0)]
PositiveFloat = Annotated[float, Bounds("a finite number above 0", lambda value: value > 0)]
NonNegativeFloat = Annotated[float, Bounds("a finite number of at least 0", lambda value: value >= 0)]
Rate = Annotated[float, Bounds("a number in [0, 1)", lambda value: 0 <= value < 1)]
Share = Annotated[float, Bounds("a number in (0, 1]", lambda value: 0 < value <= 1)]
# The seeds that NumPy accepts.
Seed = Annotated[int, Bounds("a whole number in [0, 2 ** 32)", lambda value: 0 <= value < 2**32)]
Port = Annotated[int, Bounds("a whole number from 0 to 65535", lambda value: 0 <= value < 2**16)]
_VALID = {bool: "true or false", int: "a whole number", float: "a finite number", str: "text"}


class _Kind(NamedTuple):
    """The parts of an annotation; `type` is the annotation without bounds and without None."""

    type: Any
    bounds: Bounds | None
    is_optional: bool  # None is also valid


@functools.cache
def _kind(annotation: Any) -> _Kind:
    kinds = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
    is_optional = type(None) in kinds
    kind = functools.reduce(operator.or_, (kind for kind in kinds if kind is not type(None)))
    if typing.get_origin(kind) is Annotated:
        kind, bounds, *_ = typing.get_args(kind)
        return _Kind(kind, bounds, is_optional)
    return _Kind(kind, None, is_optional)


def number_type(annotation: Any) -> type:
    """Returns the type of a number's annotation: int or float, or tuple for several numbers."""
    kind = _kind(annotation).type
    return typing.get_origin(kind) or kind


def _is_union(annotation: Any) -> bool:
    return isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union


@functools.cache
def annotations(settings: Any) -> dict[str, Any]:
    """Returns the annotation of each field of a dataclass, with its bounds."""
    hints = typing.get_type_hints(settings, include_extras=True)
    inherited: dict[str, Any] = {}
    for base in filter(dataclasses.is_dataclass, settings.__bases__):
        inherited |= annotations(typing.cast(Any, base))
    for name, annotation in inherited.items():
        if _kind(hints[name]) == _kind(annotation)._replace(bounds=None):
            hints[name] = annotation  # a subclass that declares a new default keeps the bounds
    return {field.name: hints[field.name] for field in dataclasses.fields(settings)}


def check_fields(settings: Any, form: str = "{}") -> None:
    """Checks every field of a dataclass against its annotation, and stores the values as their JSON form has them.

    NumPy numbers and arrays become Python's, and lists become tuples.

    Args:
        settings: the dataclass, which may be frozen.
        form: format of the field names in messages, such as "data.{}".

    Raises:
        InputError: an annotation does not allow a value, or a number is not finite.
    """
    kind: Any = type(settings)
    for name, annotation in annotations(kind).items():
        # Settings must be equal to those that are read back from their JSON form.
        object.__setattr__(settings, name, checked(form.format(name), annotation, getattr(settings, name)))


def check_arguments(annotation: Any, **arguments: Any) -> None:
    """Checks arguments of a layer against an annotation, such as `PositiveInt`.

    Raises:
        InputError: the annotation does not allow a value; the message names the argument and the valid values.
    """
    for name, value in arguments.items():
        checked(f"`{name}`", annotation, value)


def parsed(name: str, annotation: Any, text: str) -> Any:
    """Parses a value according to its field's annotation.

    Args:
        name: the setting's name, for messages.
        annotation: bool, int, float, str, a `Literal`, a tuple[X, ...] of one of these, or one of these with `Bounds`
            or with None as an alternative.
        text: the text to parse. Items of a tuple are separated by commas, and an empty text is an empty tuple. "none"
            and "null" mean None where it is allowed.

    Raises:
        InputError: the text is not a valid value.
    """
    kind, _, is_optional = _kind(annotation)
    if is_optional and text.lower() in ("none", "null"):
        return None
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        return tuple(parsed(name, item, part.strip()) for part in text.split(",")) if text else ()
    if kind is bool:
        return checked(name, annotation, {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text))
    value: Any = text
    if kind in (int, float):
        with contextlib.suppress(ValueError):
            value = kind(text)
    return checked(name, annotation, value)


def checked(name: str, annotation: Any, value: Any) -> Any:
    """Returns a value after checking it against an annotation.

    An int becomes a float where one is expected, a list becomes a tuple, and NumPy numbers and arrays become Python's.
    `Any` allows every value.

    Raises:
        InputError: the annotation does not allow the value, or it is not finite.
    """
    kind, bounds, is_optional = _kind(annotation)
    if kind is Any:
        return value
    value = value.tolist() if hasattr(value, "tolist") else value
    if is_optional and value is None:
        return None
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(f"{name} must be a list, got {value!r}")
        return tuple(checked(name, typing.get_args(kind)[0], item) for item in value)
    if typing.get_origin(kind) is Literal:
        if value not in typing.get_args(kind):
            valid = ", ".join(map(str, typing.get_args(kind)))
            raise InputError(f"{name} must be one of {valid}; got {value!r}")
        return value
    if kind is float and type(value) is int:
        value = float(value) if abs(value) <= sys.float_info.max else math.inf
    is_valid = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if is_valid and isinstance(value, float):
        is_valid = math.isfinite(value)
    if not is_valid or (bounds and not bounds.contains(value)):
        valid = bounds.valid if bounds else _VALID.get(kind, kind)
        raise InputError(f"{name} must be {'None or ' if is_optional else ''}{valid}, got {value!r}")
    return value
