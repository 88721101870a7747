"""Exceptions for bad user input, as opposed to programming errors, and the import of optional packages."""

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any


class InputError(ValueError):
    """Bad input that the user can correct: a file, a line, a flag or a value.

    The message is one line that states the problem and the valid input. Programs print it and exit with status 1.
    """


class AwayError(InputError):
    """A resource such as a bucket does not respond; the same command may succeed later.

    Programs print the message and exit with status 69, so that a scheduler can tell an outage from a mistake.
    """


@contextlib.contextmanager
def named(place: object) -> Iterator[None]:
    """Prefixes the message of an `InputError` raised inside with a place, such as a file or a line."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


@contextlib.contextmanager
def explained(problem: object) -> Iterator[None]:
    """Turns an `OSError` raised inside into an `InputError` that states the problem and the reason."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{problem}: {error.strerror or error}") from error


def optional_module(name: str, missing: str) -> Any:
    """Imports a module of an optional package; raises InputError with the message `missing` if it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(missing) from error
