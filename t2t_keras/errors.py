"""The exception for faulty input, as opposed to faults of the program, and packages that need not be installed."""

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any


class InputError(ValueError):
    """Bad input that the user can correct: a file, a line, a flag or a value.

    The message is one line that says what is wrong and what would be valid. Programs print it and exit with status 1.
    """


class AwayError(InputError):
    """What is needed does not answer, such as a bucket, and may do so later: the same command is to be tried again.

    Programs print it and exit with status 69, by which a scheduler can tell it from a mistake.
    """


@contextlib.contextmanager
def named(place: object) -> Iterator[None]:
    """Puts a place, such as a file or a line of it, before what an `InputError` inside says."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


@contextlib.contextmanager
def explained(what: object) -> Iterator[None]:
    """Makes an `InputError` of an `OSError` inside: what could not be done, and why."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{what}: {error.strerror or error}") from error


def optional_module(name: str, missing: str) -> Any:
    """Imports a module of a package that need not be installed; where it is not, the message `missing` says so."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(missing) from error
