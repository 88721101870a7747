"""Imports TensorFlow and Keras on first use, without notices and tracebacks.

Programs parse their flags and check their input before these imports, which take seconds.
"""

import functools
import gc
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

from t2t_keras.errors import InputError
from t2t_keras.machine.notices import list_devices, without_notices

_Execute = Callable[[ModuleType], None]


def _tensorflow(execute: _Execute, module: ModuleType) -> None:
    """Imports TensorFlow without the notices of its libraries, including those of the first look at the devices."""
    with without_notices():
        execute(module)
        list_devices(module)
    gc.freeze()  # garbage collection of imported objects takes a tenth of a program's start


def _keras(execute: _Execute, module: ModuleType) -> None:
    """Imports Keras on the backend that KERAS_BACKEND names, by default on TensorFlow, regardless of keras.json."""
    backend = os.environ["KERAS_BACKEND"] = os.environ.get("KERAS_BACKEND") or "tensorflow"
    try:
        execute(module)
    except ModuleNotFoundError as error:
        advice = ": pip install '.[jax]'" if error.name == "jax" else ""
        raise InputError(f"KERAS_BACKEND={backend}: the package {error.name} is missing{advice}") from error
    except ValueError as error:  # for the name of the backend, or for a value in keras.json
        raise InputError(f"Keras cannot be imported: {' '.join(str(error).split())}") from error


_IMPORTERS: dict[str, Callable[[_Execute, ModuleType], None]] = {"keras": _keras, "tensorflow": _tensorflow}


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the two packages, which are then imported by the functions above; ignores all other modules."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if name in _IMPORTERS else None
        if spec is not None and spec.loader is not None:
            exec_module = functools.partial(_IMPORTERS[name], spec.loader.exec_module)
            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _Finder())
