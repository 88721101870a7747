"""The flag --extension, which imports additional model families and presets; programs adopt it."""

import importlib
import os
import sys

from t2t_keras.errors import InputError

from .. import program
from ..flag_types import ANY, DEFINE_multi_path

_EXTENSION = DEFINE_multi_path(
    "extension", "A Python file, or the name of a module, that registers model families or presets.", ANY
)


def load() -> None:
    """Imports the files and modules that the flag names; raises InputError if one does not exist."""
    for name in _EXTENSION.value:
        if not name or (name.startswith(".") and not name.endswith(".py")):
            raise InputError(f"--extension={name}: give a Python file, or the full name of a module")
        folder, file = os.path.split(os.path.abspath(name))
        module = name
        if name.endswith(".py"):
            if not os.path.isfile(name):
                raise InputError(f"--extension={name}: no such file")
            sys.path.insert(0, folder)  # child processes inherit this path
            module = file.removesuffix(".py")
        try:
            extension = importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise InputError(f"--extension={name}: {error}") from None
        if name.endswith(".py") and os.path.realpath(extension.__file__ or "") != os.path.realpath(name):
            raise InputError(
                f"--extension={name}: a different module has the name {module} ({extension.__file__}); rename the file"
            )


program.BEFORE_MAIN.append(load)
