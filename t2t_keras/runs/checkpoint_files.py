"""One checkpoint: written completely or not at all, verified when read.

It is a directory, such as `checkpoints/step_00001000`, that gets its name once all its files are on disk:

    weights.npz     name -> array
    optimizer.npz   name -> array; absent if only weights were saved
    ema.npz         name -> array; only with an exponential moving average
    state.json      format, step, the trainer's state, the sha256 of each file, a checksum of all this
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
    """A verified checkpoint on disk; its arrays are read on access.

    Attributes:
        path: directory of the checkpoint.
        step: number of updates before it was saved.
        state: the state that the trainer passed to `save`.
    """

    path: Path
    step: int
    state: dict[str, Any]

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """The model's weights by name, read anew on each access."""
        return read_arrays(self.path / "weights.npz")

    @property
    def optimizer(self) -> dict[str, np.ndarray]:
        """The optimizer's variables by name; raises an InputError if only weights were saved."""
        return read_arrays(self.path / "optimizer.npz")

    @property
    def ema(self) -> dict[str, np.ndarray] | None:
        """The moving average of the weights by name, or None if there is none."""
        path = self.path / "ema.npz"
        return read_arrays(path) if path.exists() else None


def load(path: str | Path, weights_only: bool = False) -> Checkpoint:
    """Opens a checkpoint's directory and verifies its files, without the optimizer's (the largest) if `weights_only`.

    An InputError says that it is not a checkpoint, or that a file is missing or damaged.
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
    """The name of a step's directory."""
    return f"step_{step:08d}"


def write(directory: Path, name: str, step: int, files: Mapping[str, Arrays], state: Mapping[str, Any]) -> Path:
    """Writes a checkpoint under a temporary name, renames it (replacing one of that name) and returns its path.

    `directory` is created if missing; `step` counts the updates made before; `files` are arrays by file; `state` has
    JSON values. No other process may write the same name meanwhile. An InputError says that it cannot be written, and
    earlier checkpoints are untouched.
    """
    path = directory / name
    temporary = directory / f"{TEMPORARY}{name}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Another program may be writing an average at this moment.
        remove_leftovers(directory, EVERY_STEP if STEP_NAME.fullmatch(name) else name)
        temporary.mkdir()
        checksums = {file: write_arrays(temporary / file, arrays) for file, arrays in files.items()}
        document = {"format": _FORMAT, "step": step, "state": dict(state), "sha256": checksums}
        _write_document(temporary, document)
        sync_directory(temporary)
        doomed = _doomed(path)
        if path.exists():  # an average that is made again, or the same step after resuming
            os.rename(path, doomed)
        # Before the old one is deleted, which takes time.
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
    """Replaces the state (JSON values) of a checkpoint; its arrays are untouched.

    Raises:
        InputError: it is not a checkpoint, or is damaged.
        OSError: the state cannot be written; the old one is untouched.
    """
    _write_document(path, {**_read_document(path), "state": dict(state)})


def discard(path: Path) -> None:
    """Deletes a checkpoint, renaming it before its first file is deleted.

    A file that is open elsewhere may remain at first, as on NFS; `remove_leftovers` tries again.
    """
    doomed = _doomed(path)
    os.rename(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _doomed(path: Path) -> Path:
    """The name of a checkpoint while it is deleted."""
    return path.with_name(f"{TEMPORARY}{path.name}{_DELETED}")


def remove_leftovers(directory: Path, name: str) -> None:
    """Removes the leftovers of interrupted writes and deletions of a checkpoint, or of every step for `EVERY_STEP`."""
    for pattern in (f"{TEMPORARY}{name}", f"{TEMPORARY}{name}{_DELETED}"):
        for leftover in directory.glob(pattern):
            shutil.rmtree(leftover, ignore_errors=True)
    for leftover in directory.glob(f"{name}/.{STATE}.*.tmp"):
        leftover.unlink(missing_ok=True)


def _write_document(path: Path, document: Mapping[str, Any]) -> None:
    write_json(path / STATE, {**document, "checksum": _checksum(document)})


def _read_document(path: Path) -> dict[str, Any]:
    """The verified contents of a checkpoint's state.json; raises an InputError if it is missing or damaged."""
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
    """A checksum of the document's values, independent of JSON formatting."""
    as_read = json.loads(json.dumps(document))
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Writes an .npz file, syncs it to disk and returns its SHA-256; an OSError if that cannot be done.

    Arrays are of NumPy's native number types, a ValueError names others; unlike in `np.savez`, any name is allowed.
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
    except (OSError, *DAMAGED_NPZ) as error:
        raise InputError(f"{path} is damaged: {error}") from error


def sync_directory(directory: Path) -> None:
    """Makes the names of a directory's files survive a power cut, if the file system supports it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
