"""One checkpoint: written whole or not at all, verified when read.

It is a directory, such as `checkpoints/step_00001000`, that takes its name once
everything in it is on the disk:

    weights.npz     name -> array
    optimizer.npz   name -> array; absent where only weights were saved
    ema.npz         name -> array; only with an exponential moving average
    state.json      format, step, the trainer's state, the sha256 of each file, a checksum of all this

Arrays go in and arrays come out: nothing here knows TensorFlow.
"""

import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.errors import InputError
from t2t_keras.machine.files import replacing
from t2t_keras.runs.array_files import read_arrays, sha256, sync_directory, write_arrays

Arrays = Mapping[str, np.ndarray]

STATE = "state.json"
EVERY_STEP = "step_*"
TEMPORARY = ".tmp_"  # what the name of a directory begins with that is being written or deleted
STEP_NAME = re.compile(r"step_(\d{8,})")

_DELETED = ".deleted"
_FORMAT = 2
_FORMATS = (1, 2)  # that can be read; in the first, state.json had no checksum
_WEIGHTS_FILES = ("weights.npz", "ema.npz")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk, verified; its arrays are read when asked for.

    Attributes:
        path: its directory.
        step: updates made before it was saved.
        state: what the trainer gave to `save`.
    """

    path: Path
    step: int
    state: dict[str, Any]

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """The model's weights by name, read anew each time."""
        return read_arrays(self.path / "weights.npz")

    @property
    def optimizer(self) -> dict[str, np.ndarray]:
        """The optimizer's variables by name.

        Raises:
            InputError: only weights were saved.
        """
        return read_arrays(self.path / "optimizer.npz")

    @property
    def ema(self) -> dict[str, np.ndarray] | None:
        """The moving average of the weights by name; None if none was kept."""
        path = self.path / "ema.npz"
        return read_arrays(path) if path.exists() else None


def load(path: str | Path, weights_only: bool = False) -> Checkpoint:
    """Verifies a checkpoint against its checksums.

    Args:
        path: the checkpoint's directory.
        weights_only: leave the optimizer's file, the largest, unverified.

    Returns:
        The checkpoint.

    Raises:
        InputError: it is not a checkpoint, or a file is missing or damaged.
    """
    path = Path(path)
    document = _read_document(path)
    for name, expected in document["sha256"].items():
        if weights_only and name not in _WEIGHTS_FILES:
            continue
        try:
            actual = sha256(path / name)
        except OSError as error:
            raise InputError(f"{path / name} cannot be read: {error.strerror}") from error
        if actual != expected:
            raise InputError(f"{path / name} is damaged: it does not match its checksum")
    return Checkpoint(path, document["step"], document["state"])


def step_name(step: int) -> str:
    """The name of a step's directory."""
    return f"step_{step:08d}"


def write(directory: Path, name: str, step: int, files: Mapping[str, Arrays], state: Mapping[str, Any]) -> Path:
    """Writes a checkpoint under a temporary name, then renames it; one of that name is replaced.

    Args:
        directory: where; made if missing.
        name: the checkpoint's.
        step: updates made before.
        files: name of a file -> arrays.
        state: whatever else there is to keep, as JSON takes it.

    Returns:
        The checkpoint's directory.

    Raises:
        InputError: it cannot be written, for example because the disk is full; earlier checkpoints are untouched.
    """
    path = directory / name
    temporary = directory / f"{TEMPORARY}{name}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # An average may be being written by another program at this moment.
        remove_leftovers(directory, EVERY_STEP if STEP_NAME.fullmatch(name) else name)
        temporary.mkdir()
        checksums = {file: write_arrays(temporary / file, arrays) for file, arrays in files.items()}
        document = {"format": _FORMAT, "step": step, "state": dict(state), "sha256": checksums}
        _write_document(temporary, document)
        sync_directory(temporary)
        if path.exists():
            discard(path)  # the same step again, after a resumption
        os.rename(temporary, path)
    except OSError as error:
        raise InputError(
            f"cannot save checkpoint {path}: {error.strerror or error}; the earlier ones are as they were"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    sync_directory(directory)
    return path


def replace_state(path: Path, state: Mapping[str, Any]) -> None:
    """Gives a checkpoint another state; its arrays stay as they are.

    Args:
        path: the checkpoint's directory.
        state: all that is to be kept beside the arrays, as JSON takes it.

    Raises:
        InputError: it is not a checkpoint, or damaged.
        OSError: it cannot be written; the checkpoint is as it was.
    """
    document = {name: value for name, value in _read_document(path).items() if name != "checksum"}
    _write_document(path, {**document, "format": _FORMAT, "state": dict(state)})


def discard(path: Path) -> None:
    """Deletes a checkpoint, which is out of sight before its first file goes.

    A file that is being read elsewhere may stay for the time being, as on NFS: `remove_leftovers` tries again.
    """
    doomed = path.with_name(f"{TEMPORARY}{path.name}{_DELETED}")
    os.rename(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def remove_leftovers(directory: Path, name: str) -> None:
    """Removes what interrupted writers and deleters of a checkpoint left; name `EVERY_STEP` stands for all of them."""
    for pattern in (f"{TEMPORARY}{name}", f"{TEMPORARY}{name}{_DELETED}"):
        for leftover in directory.glob(pattern):
            shutil.rmtree(leftover, ignore_errors=True)
    for leftover in directory.glob(f"{name}/.{STATE}.*.tmp"):
        leftover.unlink(missing_ok=True)


def _write_document(path: Path, document: Mapping[str, Any]) -> None:
    with replacing(path / STATE) as file:
        json.dump({**document, "checksum": _checksum(document)}, file, indent=1)


def _read_document(path: Path) -> dict[str, Any]:
    """What state.json of a checkpoint holds, verified; raises an InputError if it is missing or damaged."""
    try:
        document = json.loads((path / STATE).read_text(encoding="utf-8"))
        found, _, _, _ = (document[key] for key in ("format", "step", "state", "sha256"))
        is_damaged = found == _FORMAT and document.pop("checksum") != _checksum(document)
    except FileNotFoundError:
        raise InputError(f"{path} is not a checkpoint: it has no {STATE}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path / STATE} is damaged: {error}") from error
    if found not in _FORMATS:
        raise InputError(f"{path / STATE} has format {found!r}; this version of t2t_keras reads up to {_FORMAT}")
    if is_damaged:
        raise InputError(f"{path / STATE} is damaged: it does not match its checksum")
    return document


def _checksum(document: Mapping[str, Any]) -> str:
    """Of what a document says, however JSON is spaced."""
    as_read = json.loads(json.dumps(document))
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()
