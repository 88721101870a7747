"""Named arrays on the disk: .npz files that NumPy reads, written through, and their checksums."""

import contextlib
import hashlib
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from t2t_keras.errors import InputError


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Writes an .npz file through to the disk.

    Args:
        path: the file.
        arrays: name -> array of one of NumPy's own number types; any name will do, unlike with `np.savez`.

    Returns:
        The file's sha256.

    Raises:
        OSError: it cannot be written.
        ValueError: an array of another type.
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
    """Reads an .npz file whole.

    Args:
        path: the file.

    Returns:
        Name -> array.

    Raises:
        InputError: it is missing or damaged.
    """
    try:
        with np.load(path) as arrays:
            return dict(arrays)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is damaged: {error}") from error


def sha256(path: Path) -> str:
    """A file's checksum, in hexadecimal digits.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_directory(directory: Path) -> None:
    """Makes the names of a directory's files survive a power cut, where the file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
