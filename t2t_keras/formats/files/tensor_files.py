"""Reads files of named tensors in the formats safetensors, .npz and torch; writes safetensors."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from t2t_keras.errors import InputError, optional_module
from t2t_keras.formats.files.setting_files import read_bytes
from t2t_keras.formats.files.torch_files import read_torch_file
from t2t_keras.machine.files import DAMAGED_NPZ, replacing

_MISSING = "the package safetensors is missing: pip install '.[convert]'"
# Dtypes by safetensors name. The package's own function for NumPy does not support bfloat16.
_TYPES = {"BF16": ml_dtypes.bfloat16, "BOOL": np.bool_}
_TYPES |= {f"{kind.upper()}{8 * size}": f"<{kind}{size}" for size in (1, 2, 4, 8) for kind in "iu"}
_TYPES |= {f"F{8 * size}": f"<f{size}" for size in (2, 4, 8)}


def read_tensors(folder: Path, names: Sequence[str]) -> tuple[Path, dict[str, np.ndarray]]:
    """Reads the first of several files that exists in a folder.

    Returns:
        The path of the file, and its tensors by name.

    Raises:
        InputError: none of the files exists, or the file is damaged or does not hold tensors by name.
    """
    for name in names:
        if (path := folder / name).exists():
            return path, read_safetensors(path) if path.suffix == ".safetensors" else _arrays(path)
    raise InputError(f"{folder} has no weights: none of {', '.join(names)}")


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Reads all arrays of a .npz file; pickled arrays are not allowed.

    Raises:
        InputError: the file cannot be read; names it.
    """
    try:
        with open(path, "rb") as file:
            is_archive = zipfile.is_zipfile(file)
            file.seek(0)
            if not is_archive:
                raise ValueError("it is not an archive, or is truncated")
            with np.load(file) as arrays:
                return dict(arrays)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except DAMAGED_NPZ as error:
        raise InputError(f"{path} cannot be read as .npz: {error}") from error


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """Reads the tensors of a torch file."""
    contents = read_torch_file(path)
    if not isinstance(contents, Mapping):
        raise InputError(f"{path} must contain tensors by name, but contains {type(contents).__name__}")
    if odd := [name for name, value in contents.items() if not isinstance(value, np.ndarray)]:
        raise InputError(f"{path}: {odd[0]!r} is not a tensor")
    return dict(contents)


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Reads all tensors of a safetensors file.

    Raises:
        InputError: the file cannot be read, or the package is missing.
    """
    safetensors, contents = _safetensors(), read_bytes(path)
    try:
        items = safetensors.deserialize(contents)
        return {name: np.frombuffer(each["data"], _TYPES[each["dtype"]]).reshape(each["shape"]) for name, each in items}
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} cannot be read as safetensors: {error}") from error


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes tensors by name to a safetensors file, atomically."""
    with replacing(path, "wb") as file:
        file.write(_safetensors().numpy.save(dict(tensors), metadata={"format": "pt"}))


def _safetensors() -> Any:
    optional_module("safetensors.numpy", _MISSING)
    return optional_module("safetensors", _MISSING)
