"""The exception for faulty input, as opposed to faults of the program, and packages that need not be installed."""

import importlib
from typing import Any


class InputError(ValueError):
    """Bad input that the user can correct: a file, a line, a flag or a value.

    The message is one line that says what is wrong and what would be valid. Programs print it and exit with status 1.
    """


def optional_module(name: str, missing: str) -> Any:
    """Imports a module of a package that need not be installed; where it is not, the message `missing` says so."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(missing) from error
