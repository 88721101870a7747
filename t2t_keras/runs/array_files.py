"""Named arrays in .npz files, synced to disk."""

import contextlib
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from t2t_keras.errors import InputError
from t2t_keras.machine.files import sha256


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Writes an .npz file, syncs it to disk and returns its SHA-256.

    Args:
        path: the file.
        arrays: name -> array of NumPy's native number types; unlike in `np.savez`, any name is allowed.

    Raises:
        OSError: the file cannot be written.
        ValueError: an array has another type.
    """
    with open(path, "wb") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, array in arrays.items():
                values = np.asanyarray(array)
                if values.dtype.kind not in "biuf":
                    raise ValueError(f"arrays must be of NumPy's own number types, got {values.dtype} for {name!r}")
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, values, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
    return sha256(path)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Reads all arrays of an .npz file by name; raises an InputError if it is missing or damaged."""
    try:
        with np.load(path) as arrays:
            return dict(arrays)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except (
        *(OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error),
        *(RuntimeError, TypeError, MemoryError),  # an unknown compression, an array that is in no archive, a wrong size
    ) as error:
        raise InputError(f"{path} is damaged: {error}") from error


def sync_directory(directory: Path) -> None:
    """Makes the names of a directory's files survive a power cut, if the file system supports it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
