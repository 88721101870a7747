"""Flags of numbers and paths. All programs define such flags with these functions, so that all are checked alike.

A number is checked when it is parsed. A path is checked after all flags are parsed, by `program`.
"""

import enum
import os
from collections.abc import Iterator
from typing import Annotated, Any

from absl import flags

from t2t_keras.errors import InputError
from t2t_keras.values import between, checked, number_type, parsed

flags.disclaim_key_flags()  # they belong to the calling module


class PathKind(enum.Enum):
    """The role of a path, which determines the valid paths."""

    FILE = "an existing file, or a device or pipe"
    FOLDER = "an existing folder"
    NEW_FILE = "a file to write, in an existing folder"
    NEW_FOLDER = "a folder to write"
    ANY = "a path or a name, which the program checks"


FILE, FOLDER, NEW_FILE, NEW_FOLDER, ANY = PathKind
MINUTES = Annotated[float, between(0.01, 1_000_000)]  # of training


class _NumberParser(flags.ArgumentParser):
    """Parses and checks a number, or numbers separated by commas; messages name the flag."""

    def __init__(self, name: str, annotation: Any) -> None:
        self.annotation = annotation
        self._name = name

    def parse(self, argument: Any) -> Any:
        convert = parsed if isinstance(argument, str) else checked
        try:
            return convert(f"--{self._name}", self.annotation, argument)
        except InputError as error:
            raise flags.IllegalFlagValueError(str(error)) from None

    def flag_type(self) -> str:
        return number_type(self.annotation).__name__


class _PathParser(flags.ArgumentParser):
    """Parses a path, or paths separated by commas; replaces ~ by the home directory, as shells do only at the start."""

    def __init__(self, kind: PathKind, is_list: bool) -> None:
        self.kind = kind
        self._is_list = is_list

    def parse(self, argument: Any) -> Any:
        if not self._is_list:
            return os.path.expanduser(argument)
        names = argument if isinstance(argument, list) else argument.split(",") if argument else []
        return [os.path.expanduser(name.strip()) for name in names]

    def flag_type(self) -> str:
        return "path"


def DEFINE_number(name: str, default: Any, help: str, annotation: Any, **options: Any) -> flags.FlagHolder:  # noqa: N802
    """Defines a flag of a number, or of numbers separated by commas.

    Args:
        name: the flag's name.
        default: the default value, or None.
        help: the description.
        annotation: the numbers that are valid, such as `PositiveInt` or tuple[PositiveInt, ...].
        options: arguments of `flags.DEFINE`.
    """
    parser = _NumberParser(name, annotation)
    return flags.DEFINE(parser, name, default, help, serializer=flags.ArgumentSerializer(), **options)


def DEFINE_path(  # noqa: N802
    name: str, default: str | None, help: str, kind: PathKind, is_list: bool = False, **options: Any
) -> flags.FlagHolder:
    """Defines a flag of a path, or with `is_list` of paths separated by commas."""
    serializer = flags.ListSerializer(",") if is_list else flags.ArgumentSerializer()
    return flags.DEFINE(_PathParser(kind, is_list), name, default, help, serializer=serializer, **options)


def DEFINE_multi_path(name: str, help: str, kind: PathKind, **options: Any) -> flags.FlagHolder:  # noqa: N802
    """Defines a flag of a path that may be given several times; its value is a list."""
    return flags.DEFINE_multi(_PathParser(kind, False), flags.ArgumentSerializer(), name, [], help, **options)


def path_values() -> Iterator[tuple[flags.Flag, PathKind, str]]:
    """Yields each path of the flags that is not empty, with its flag and its kind."""
    for name in flags.FLAGS:
        flag = flags.FLAGS[name]
        if isinstance(flag.parser, _PathParser):
            for path in flag.value if isinstance(flag.value, list) else [flag.value]:
                if path:
                    yield flag, flag.parser.kind, path


def check_path(name: str, kind: PathKind, path: str) -> None:
    """Raises InputError if a local path is not of its kind; the message names the flag."""
    if kind in (FILE, NEW_FILE) and os.path.isdir(path):
        raise InputError(f"--{name}={path} is a folder; give a file")
    if kind in (FOLDER, NEW_FOLDER) and os.path.exists(path) and not os.path.isdir(path):
        raise InputError(f"--{name}={path} is a file; give a folder")
    if kind in (FILE, FOLDER) and not os.path.exists(path):
        raise InputError(f"--{name}={path}: no such {kind.name.lower()}")
    if kind is NEW_FILE and not os.path.isdir(folder := os.path.dirname(path) or "."):
        raise InputError(f"--{name}={path}: no such folder: {folder}")
