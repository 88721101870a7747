"""Defines flags from the fields of settings, with the fields' names, types and descriptions."""

import dataclasses
import inspect
import re
import typing
from typing import Any, Literal

from absl import flags

from t2t_keras.values import annotations

from ..flag_types import FILE, DEFINE_number, DEFINE_path

flags.disclaim_key_flags()  # they belong to the calling module

DEFAULT = "; default: that of the model."
_DEFINE = {bool: flags.DEFINE_bool, str: flags.DEFINE_string, tuple[str, ...]: flags.DEFINE_list}


def define(settings: type, *names: str) -> tuple[flags.FlagHolder, ...]:
    """Defines a flag for each named field of a dataclass, whose docstring describes it; the default is None."""
    return tuple(_define(settings, name, None, DEFAULT) for name in names)


def define_usual(settings: type, *names: str) -> tuple[flags.FlagHolder, ...]:
    """Like `define`, with the default values of the fields."""
    return tuple(_define(settings, name, getattr(settings, name), ".") for name in names)


def define_files(settings: type, *names: str) -> tuple[flags.FlagHolder, ...]:
    """Like `define_usual`, for fields that are paths of existing files."""
    return tuple(DEFINE_path(name, getattr(settings, name), _text(settings, name, "."), FILE) for name in names)


def _define(settings: type, name: str, default: Any, end: str) -> flags.FlagHolder:
    annotation, text = annotations(settings)[name], _text(settings, name, end)
    if typing.get_origin(annotation) is Literal:
        return flags.DEFINE_enum(name, default, typing.get_args(annotation), text)
    if annotation in _DEFINE:
        return _DEFINE[annotation](name, default, text)
    return DEFINE_number(name, default, text, annotation)


def _text(settings: type, name: str, end: str) -> str:
    """Returns the description of a field as a sentence."""
    text = descriptions(settings)[name]
    return text[0].upper() + text[1:] + end


def descriptions(settings: type) -> dict[str, str]:
    """Returns the description of each field from a dataclass's docstring, on one line and without the full stop."""
    # Python 3.13 removes the indentation of docstrings itself; with -OO, docstrings are missing.
    _, _, attributes = inspect.cleandoc(settings.__doc__ or "").partition("Attributes:\n")
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", attributes, re.MULTILINE)
    texts = {name: " ".join(text.split()).removesuffix(".") for name, text in entries}
    return {field.name: texts.get(field.name, field.name) for field in dataclasses.fields(settings)}


def values(holders: tuple[flags.FlagHolder, ...]) -> dict[str, Any]:
    """Returns the values of the given flags, by name."""
    return {holder.name: holder.value for holder in holders if holder.value is not None}
