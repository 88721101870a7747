"""Writes a checkpoint atomically, and verifies it when it is read.

A checkpoint is a directory, such as `checkpoints/step_00001000`. It is renamed to its final name once all its files are
on disk:

    weights.npz     arrays by name
    optimizer.npz   arrays by name; absent if only weights were saved
    ema.npz         arrays by name; only if moving averages of the weights are kept
    state.json      format, step, the trainer's state, the SHA-256 of each file, and a checksum of these values
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.errors import InputError, explained
from t2t_keras.machine.files import DAMAGED_NPZ, sha256, write_json

Arrays = Mapping[str, np.ndarray]

STATE = "state.json"
EVERY_STEP = "step_*"
TEMPORARY = ".tmp_"  # prefix of a directory that is being written or deleted
STEP_NAME = re.compile(r"step_(\d{8,})")

_DELETED = ".deleted"
_FORMAT = 2
_WEIGHTS_FILES = ("weights.npz", "ema.npz")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk that `load` has verified; its arrays are read from disk on each access.

    Attributes:
        path: directory of the checkpoint.
        step: number of updates before it was saved.
        state: the state that it was saved with; JSON values.
    """

    path: Path
    step: int
    state: dict[str, Any]

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """The model's weights by name."""
        return read_arrays(self.path / "weights.npz")

    @property
    def optimizer(self) -> dict[str, np.ndarray]:
        """The optimizer's arrays by name; raises an InputError if only weights were saved."""
        return read_arrays(self.path / "optimizer.npz")

    @property
    def ema(self) -> dict[str, np.ndarray] | None:
        """The moving averages of the weights by name, or None if none were saved."""
        path = self.path / "ema.npz"
        return read_arrays(path) if path.exists() else None


def load(path: str | Path, weights_only: bool = False) -> Checkpoint:
    """Opens a checkpoint and verifies its files.

    Args:
        path: directory of the checkpoint.
        weights_only: whether to skip verifying the optimizer's file, which is the largest.

    Raises:
        InputError: the directory is not a checkpoint, its format is unknown, or a file is missing or damaged.
    """
    path = Path(path)
    document = _read_document(path)
    for name, expected in document["sha256"].items():
        if weights_only and name not in _WEIGHTS_FILES:
            continue
        with explained(f"{path / name} cannot be read"):
            actual = sha256(path / name)
        if actual != expected:
            raise InputError(f"{path / name} is damaged: it does not match its checksum")
    return Checkpoint(path, document["step"], document["state"])


def step_name(step: int) -> str:
    """Returns the name of the directory for a step."""
    return f"step_{step:08d}"


def write(directory: Path, name: str, step: int, files: Mapping[str, Arrays], state: Mapping[str, Any]) -> Path:
    """Writes a checkpoint under a temporary name, and then renames it, replacing a checkpoint with the same name.

    No other process may write a checkpoint with this name at the same time.

    Args:
        directory: the run's `checkpoints` directory; created if missing.
        name: name of the checkpoint.
        step: number of updates so far.
        files: arrays by name for each file name.
        state: JSON values.

    Returns:
        The directory of the checkpoint.

    Raises:
        InputError: the checkpoint cannot be written; earlier checkpoints are left unchanged.
        ValueError: an array has an unsupported dtype, see `write_arrays`.
    """
    path = directory / name
    temporary = directory / f"{TEMPORARY}{name}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Not the leftovers of all names, because another process may be writing an average at the same time.
        remove_leftovers(directory, EVERY_STEP if STEP_NAME.fullmatch(name) else name)
        temporary.mkdir()
        checksums = {file: write_arrays(temporary / file, arrays) for file, arrays in files.items()}
        document = {"format": _FORMAT, "step": step, "state": dict(state), "sha256": checksums}
        _write_document(temporary, document)
        sync_directory(temporary)
        doomed = _doomed(path)
        if path.exists():  # a recomputed average, or a step that was repeated after resuming
            os.rename(path, doomed)
        # Renamed before the old checkpoint is deleted, because deleting takes time.
        os.rename(temporary, path)
        shutil.rmtree(doomed, ignore_errors=True)
    except OSError as error:
        raise InputError(
            f"cannot save checkpoint {path}: {error.strerror or error}; the earlier ones are as they were"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    sync_directory(directory)
    return path


def replace_state(path: Path, state: Mapping[str, Any]) -> None:
    """Replaces the state of a checkpoint atomically, and leaves its arrays unchanged.

    Args:
        path: directory of the checkpoint.
        state: the new state, JSON values.

    Raises:
        InputError: the directory is not a checkpoint, or its state.json is damaged.
        OSError: the state cannot be written; the old state is left unchanged.
    """
    _write_document(path, {**_read_document(path), "state": dict(state)})


def discard(path: Path) -> None:
    """Deletes a checkpoint; renames it first, so that it is never visible with missing files.

    On file systems such as NFS, files that another process has open may remain. `remove_leftovers` tries again.

    Raises:
        OSError: the checkpoint cannot be renamed.
    """
    doomed = _doomed(path)
    os.rename(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _doomed(path: Path) -> Path:
    """Returns the path of a checkpoint while it is being deleted."""
    return path.with_name(f"{TEMPORARY}{path.name}{_DELETED}")


def remove_leftovers(directory: Path, name: str) -> None:
    """Removes the leftovers of interrupted writes and deletions.

    Args:
        directory: the run's `checkpoints` directory.
        name: name of the checkpoint, or `EVERY_STEP` for the checkpoints of all steps.
    """
    for pattern in (f"{TEMPORARY}{name}", f"{TEMPORARY}{name}{_DELETED}"):
        for leftover in directory.glob(pattern):
            shutil.rmtree(leftover, ignore_errors=True)
    for leftover in directory.glob(f"{name}/.{STATE}.*.tmp"):
        leftover.unlink(missing_ok=True)


def _write_document(path: Path, document: Mapping[str, Any]) -> None:
    write_json(path / STATE, {**document, "checksum": _checksum(document)})


def _read_document(path: Path) -> dict[str, Any]:
    """Reads and verifies the state.json of a checkpoint.

    Raises:
        InputError: the file is missing, damaged, or in a different format.
    """
    try:
        document = json.loads((path / STATE).read_text(encoding="utf-8"))
        file_format, _, _, _ = (document[key] for key in ("format", "step", "state", "sha256"))
        is_damaged = file_format == _FORMAT and document.pop("checksum") != _checksum(document)
    except FileNotFoundError:
        raise InputError(f"{path} is not a checkpoint: it has no {STATE}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path / STATE} is damaged: {error}") from error
    if file_format != _FORMAT:
        raise InputError(f"{path / STATE} has format {file_format!r}; this version of t2t_keras reads {_FORMAT}")
    if is_damaged:
        raise InputError(f"{path / STATE} is damaged: it does not match its checksum")
    return document


def _checksum(document: Mapping[str, Any]) -> str:
    """Computes a checksum of the values, independent of JSON formatting."""
    as_read = json.loads(json.dumps(document))
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Writes an .npz file and syncs it to disk.

    Args:
        path: the file to write.
        arrays: arrays by name, of Boolean, integer or floating-point NumPy dtypes. Unlike `np.savez`, allows any name.

    Returns:
        The SHA-256 of the file.

    Raises:
        ValueError: an array has a different dtype.
        OSError: the file cannot be written.
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
    """Reads all arrays of an .npz file by name; raises an InputError if the file is missing or damaged."""
    try:
        with np.load(path) as arrays:
            return dict(arrays)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except (OSError, *DAMAGED_NPZ) as error:
        raise InputError(f"{path} is damaged: {error}") from error


def sync_directory(directory: Path) -> None:
    """Syncs a directory to disk, so that renamed files survive a power failure, if the file system supports that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
