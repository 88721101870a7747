"""The checkpoints of a run: each is written atomically, and verified when it is read.

A checkpoint is a directory in the run's `checkpoints` directory: `step_00001000` for a step, or another name, such as
`averaged_last5`. It is renamed to its final name once all its files are on disk:

    weights.npz     arrays by name
    optimizer.npz   arrays by name; absent if only weights were saved
    ema.npz         arrays by name; only if moving averages of the weights are kept
    state.json      format, step, the trainer's state, the SHA-256 of each file, and a checksum of these values

The state has a record of each validation so far. The best checkpoint follows from the records of the newest one.
"""

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.errors import InputError
from t2t_keras.machine.files import DAMAGED_NPZ, read_cache, sha256, write_json
from t2t_keras.machine.locking import locked

Arrays = Mapping[str, np.ndarray]

STATE = "state.json"
STEP_NAME = re.compile(r"step_(\d{8,})")
EPOCHS = "epochs"  # key in the state of a step, for the number of passes over the training text so far
VALIDATIONS = "validations"  # key in the state of a step, for the records of the validations so far

_TEMPORARY = ".tmp_"  # prefix of a directory that is being written or deleted
_DELETED = ".deleted"
_EVERY_STEP = "step_*"
_FORMAT = 2
_WEIGHTS_FILES = ("weights.npz", "ema.npz")
_ORDER = "order"  # key in the state of an average, for a number that grows with each new average


class DamagedCheckpointError(InputError):
    """A file of a checkpoint is missing, or its contents are wrong.

    Other errors of reading, such as a stale NFS handle, may pass. They raise a plain `InputError`, so that no intact
    checkpoint is skipped and then deleted as damaged.
    """


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


@dataclasses.dataclass(frozen=True)
class ValidationRecord:
    """The record of a validation.

    Attributes:
        step: step of the validated checkpoint.
        metric: "loss", or the task's score, such as "bleu".
        value: value of the metric.
        is_scheduled: whether the validation was due at this step; False if a limit ended the training there.
    """

    step: int
    metric: str
    value: float
    is_scheduled: bool = True

    @property
    def gain(self) -> float:
        """The value as a number of which larger is better."""
        return -self.value if self.metric == "loss" else self.value


def best_of(validations: Sequence[ValidationRecord]) -> ValidationRecord | None:
    """Returns the first of the best validations, or None if there are none."""
    return max(validations, key=lambda validation: validation.gain, default=None)


def load(path: str | Path, weights_only: bool = False) -> Checkpoint:
    """Opens a checkpoint and verifies its files.

    Args:
        path: directory of the checkpoint.
        weights_only: whether to skip verifying the optimizer's file, which is the largest.

    Raises:
        DamagedCheckpointError: the directory is not a checkpoint, or a file is missing or damaged.
        InputError: the format of the checkpoint is unknown, or a file cannot be read.
    """
    path = Path(path)
    document = _read_document(path)
    for name, expected in document["sha256"].items():
        if weights_only and name not in _WEIGHTS_FILES:
            continue
        with _reading(path / name):
            actual = sha256(path / name)
        if actual != expected:
            raise DamagedCheckpointError(f"{path / name} is damaged: it does not match its checksum")
    return Checkpoint(path, document["step"], document["state"])


def step_name(step: int) -> str:
    """Returns the name of the directory for a step."""
    return f"step_{step:08d}"


def save(
    directory: str | Path,
    step: int,
    weights: Arrays,
    optimizer: Arrays,
    state: Mapping[str, Any],
    ema: Arrays | None = None,
) -> Path:
    """Saves a checkpoint of a step, and removes the leftovers of interrupted saves.

    Args:
        directory: the run's `checkpoints` directory; created if missing.
        step: number of updates so far.
        weights: arrays by weight name.
        optimizer: the optimizer's arrays by name.
        state: everything else that resuming needs (epoch, batch, seed), as JSON values.
        ema: moving averages of the weights by name, if they are kept.

    Returns:
        The directory of the checkpoint.

    Raises:
        InputError: the checkpoint cannot be written.
    """
    files = {"weights.npz": weights, "optimizer.npz": optimizer}
    if ema is not None:
        files["ema.npz"] = ema
    return _write(Path(directory), step_name(step), step, files, state)


def save_weights(directory: str | Path, name: str, step: int, weights: Arrays, state: Mapping[str, Any]) -> Path:
    """Saves a checkpoint that has only weights, for translation.

    Args:
        directory: the run's `checkpoints` directory; created if missing.
        name: name of the checkpoint, such as "averaged_last10".
        step: the newest step of the run. By default, `resolve` prefers a later step to this checkpoint.
        weights: arrays by weight name.
        state: origin of the weights, as JSON values.

    Returns:
        The directory of the checkpoint.

    Raises:
        InputError: the name is reserved or not a valid file name, the checkpoint cannot be written, or another process
            is saving weights in the directory.
    """
    is_taken = STEP_NAME.fullmatch(name) or name in ("best", "latest") or name.isdigit()
    if is_taken or not re.fullmatch(r"\w[\w.+-]*", name):
        raise InputError(
            f"{name!r} is not a valid name of a checkpoint; use letters, digits, '_', '-', for example averaged_last10"
        )
    # Two processes that save the same name would use, and first remove, the same temporary directory.
    with locked(Path(directory), verb="save weights", participle="written", flag="--model_dir"):
        paths = [Path(directory) / entry / STATE for entry in _list_names(Path(directory)) if entry != name]
        state = {**state, _ORDER: 1 + max((_order(read_cache(path).get("state")) for path in paths), default=0)}
        return _write(Path(directory), name, step, {"weights.npz": weights}, state)


def latest(directory: str | Path, weights_only: bool = False) -> Checkpoint | None:
    """Returns the newest intact checkpoint of a step, or None if there are no checkpoints of steps.

    Damaged checkpoints are skipped with a warning.

    Args:
        directory: the run's `checkpoints` directory.
        weights_only: as in `load`.

    Raises:
        InputError: all checkpoints are damaged, or a newer checkpoint than the first intact one cannot be read.
    """
    damaged: list[str] = []
    for step in reversed(steps(directory)):
        try:
            checkpoint = load(Path(directory) / step_name(step), weights_only)
        except DamagedCheckpointError as error:
            damaged.append(str(error))
            continue
        for message in damaged:
            logging.getLogger(__name__).warning("%s; using %s instead", message, checkpoint.path)
        return checkpoint
    if damaged:
        raise InputError(f"no usable checkpoint in {directory}: {'; '.join(damaged)}")
    return None


def resolve(directory: str | Path, name: str | None = None) -> Path:
    """Returns the directory of the checkpoint with a given name, for `load`.

    Args:
        directory: the run's `checkpoints` directory.
        name: "latest", "best", a step number, the name of a directory in `directory` (such as "averaged_last10"), or
            the path of a checkpoint. None means the newest average, or "latest" if there is a later step.

    Raises:
        InputError: the checkpoint does not exist (lists the existing ones), all checkpoints are damaged, or a file
            cannot be read.
    """
    directory = Path(directory)
    if name is None:
        path = _newest_average(directory) or _latest_path(directory)
    elif name == "latest":
        path = _latest_path(directory)
    else:
        path = _find(directory, name)
    if path is None:
        names = ["best"] * (_find(directory, "best") is not None) + _list_names(directory)
        numbers = ", ".join(map(str, steps(directory)))
        raise InputError(
            f"no checkpoint {'latest' if name is None else name!r} in {directory}; steps there: {numbers or 'none'}; "
            f"names there: {', '.join(names) or 'none'}"
        )
    return path


def steps(directory: str | Path) -> list[int]:
    """Returns the steps that have checkpoints, in ascending order; the checkpoints are not verified."""
    directory = Path(directory)
    if not directory.is_dir():
        return []
    matches = (STEP_NAME.fullmatch(entry.name) for entry in directory.iterdir() if entry.is_dir())
    return sorted(int(match[1]) for match in matches if match)


def newest_paths(directory: str | Path, count: int) -> list[Path]:
    """Returns the directories of the `count` newest steps, or of all if there are fewer, in ascending order."""
    return [Path(directory) / step_name(step) for step in steps(directory)[-count:]]


def exist(directory: str | Path) -> bool:
    """Returns whether a directory has any checkpoints, of steps or with other names."""
    return bool(steps(directory) or _list_names(Path(directory)))


def prune(directory: str | Path, keep: int, newest: int | None = None) -> list[int]:
    """Deletes all checkpoints of steps except the newest and the best.

    Args:
        directory: the run's `checkpoints` directory.
        keep: number of newest checkpoints to keep, at least 1.
        newest: step of the newest good checkpoint, if known. Later ones are damaged and are deleted too.

    Returns:
        The deleted steps, in ascending order.

    Raises:
        ValueError: `keep` is less than 1.
        OSError: a checkpoint cannot be deleted.
    """
    if keep < 1:
        raise ValueError(f"keep must be at least 1, got {keep}")
    saved_steps = steps(directory)
    good_steps = [step for step in saved_steps if newest is None or step <= newest]
    best_validation = best(directory, newest)
    kept_steps = {*good_steps[-keep:], *([best_validation.step] if best_validation else [])}
    deleted = [step for step in saved_steps if step not in kept_steps]
    for step in deleted:
        discard(directory, step)
    return deleted


def best(directory: str | Path, newest: int | None = None) -> ValidationRecord | None:
    """Returns the best validation so far, or None if there is none.

    Args:
        directory: the run's `checkpoints` directory.
        newest: step of the checkpoint whose records are read; None means the newest. If it is damaged, the one before
            is read.

    Raises:
        InputError: a file cannot be read.
    """
    for step in reversed(steps(directory)):
        if newest is None or step <= newest:
            with contextlib.suppress(DamagedCheckpointError):
                state = _read_document(Path(directory) / step_name(step))["state"]
                return best_of([ValidationRecord(**record) for record in state.get(VALIDATIONS, [])])
    return None


def discard(directory: str | Path, step: int) -> None:
    """Deletes the checkpoint of a step if it exists; renames it first, so that it is never visible with missing files.

    On file systems such as NFS, files that another process has open may remain. `remove_leftovers` tries again.

    Raises:
        OSError: the checkpoint cannot be renamed.
    """
    path = Path(directory) / step_name(step)
    if path.exists():
        target = _deletion_path(path)
        os.rename(path, target)
        shutil.rmtree(target, ignore_errors=True)


def replace_state(directory: str | Path, step: int, state: Mapping[str, Any]) -> None:
    """Replaces the state of a step's checkpoint atomically, and leaves its arrays unchanged.

    Args:
        directory: the run's `checkpoints` directory.
        step: step of the checkpoint.
        state: the new state, JSON values.

    Raises:
        InputError: there is no such checkpoint, or its state.json is damaged.
        OSError: the state cannot be written; the old state is left unchanged.
    """
    path = Path(directory) / step_name(step)
    _write_document(path, {**_read_document(path), "state": dict(state)})


def remove_leftovers(directory: str | Path) -> None:
    """Removes the files of unfinished writes and deletions of a killed trainer; the caller must hold the run's lock."""
    _remove_leftovers(Path(directory), _EVERY_STEP)


def _latest_path(directory: Path) -> Path | None:
    checkpoint = latest(directory, weights_only=True)
    return checkpoint.path if checkpoint else None


def _newest_average(directory: Path) -> Path | None:
    """Returns the newest intact average, or None if there is a later step; logs a warning for damaged averages."""
    averages = []
    for name in _list_names(directory):
        try:
            averages.append(load(directory / name, weights_only=True))
        except DamagedCheckpointError as error:
            logging.getLogger(__name__).warning("%s; the checkpoint is skipped", error)
    newest = max(averages, key=lambda average: (average.step, _order(average.state)), default=None)
    return newest.path if newest and newest.step >= max(steps(directory), default=0) else None


def _order(state: Mapping[str, Any] | None) -> int:
    return state.get(_ORDER, 0) if isinstance(state, Mapping) else 0


def _find(directory: Path, name: str) -> Path | None:
    """Returns the directory of a checkpoint by a name other than "latest"; None if it does not exist."""
    if name == "best":
        pointer = best(directory)
        paths = [directory / step_name(pointer.step)] if pointer else []
    elif name.isascii() and name.isdigit():
        paths = [directory / step_name(int(name))]
    else:
        paths = [directory / name, Path(name)]
    return next((path for path in paths if (path / STATE).is_file()), None)


def _list_names(directory: Path) -> list[str]:
    """Returns the names of the checkpoints that are not of steps."""
    if not directory.is_dir():
        return []
    names = (entry.parent.name for entry in directory.glob(f"*/{STATE}"))
    return sorted(name for name in names if not name.startswith(_TEMPORARY) and not STEP_NAME.fullmatch(name))


def _write(directory: Path, name: str, step: int, files: Mapping[str, Arrays], state: Mapping[str, Any]) -> Path:
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
    temporary = directory / f"{_TEMPORARY}{name}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Only leftovers of this name, or of steps: a different process may be writing an average at the same time.
        _remove_leftovers(directory, _EVERY_STEP if STEP_NAME.fullmatch(name) else name)
        temporary.mkdir()
        checksums = {file: write_arrays(temporary / file, arrays) for file, arrays in files.items()}
        document = {"format": _FORMAT, "step": step, "state": dict(state), "sha256": checksums}
        _write_document(temporary, document)
        sync_directory(temporary)
        target = _deletion_path(path)
        if path.exists():  # a recomputed average, or a step that was repeated after resuming
            os.rename(path, target)
        # Renamed before the old checkpoint is deleted, because deleting takes time.
        os.rename(temporary, path)
        shutil.rmtree(target, ignore_errors=True)
    except OSError as error:
        raise InputError(
            f"cannot save checkpoint {path}: {error.strerror or error}; earlier checkpoints are unchanged"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    sync_directory(directory)
    return path


def _deletion_path(path: Path) -> Path:
    """Returns the path of a checkpoint while it is being deleted."""
    return path.with_name(f"{_TEMPORARY}{path.name}{_DELETED}")


def _remove_leftovers(directory: Path, name: str) -> None:
    """Removes the leftovers of interrupted writes and deletions.

    Args:
        directory: the run's `checkpoints` directory.
        name: name of the checkpoint, or `_EVERY_STEP` for the checkpoints of all steps.
    """
    for pattern in (f"{_TEMPORARY}{name}", f"{_TEMPORARY}{name}{_DELETED}"):
        for leftover in directory.glob(pattern):
            shutil.rmtree(leftover, ignore_errors=True)
    for leftover in directory.glob(f"{name}/.{STATE}.*.tmp"):
        leftover.unlink(missing_ok=True)


def _write_document(path: Path, document: Mapping[str, Any]) -> None:
    write_json(path / STATE, {**document, "checksum": _checksum(document)})


def _read_document(path: Path) -> dict[str, Any]:
    """Reads and verifies the state.json of a checkpoint.

    Raises:
        DamagedCheckpointError: the file is missing or damaged.
        InputError: the file cannot be read, or is in a different format.
    """
    with _reading(path / STATE, missing=f"{path} is not a checkpoint: it has no {STATE}"):
        contents = (path / STATE).read_bytes()
    try:
        document = json.loads(contents.decode("utf-8"))
        file_format, _, _, _ = (document[key] for key in ("format", "step", "state", "sha256"))
        is_damaged = file_format == _FORMAT and document.pop("checksum") != _checksum(document)
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedCheckpointError(f"{path / STATE} is damaged: {error}") from error
    if file_format != _FORMAT:
        raise InputError(f"{path / STATE} has format {file_format!r}; this version of t2t_keras reads {_FORMAT}")
    if is_damaged:
        raise DamagedCheckpointError(f"{path / STATE} is damaged: it does not match its checksum")
    return document


@contextlib.contextmanager
def _reading(path: Path, missing: str | None = None) -> Iterator[None]:
    """Turns an `OSError` of reading a file into an `InputError` that names it.

    Args:
        path: the file.
        missing: the message if the file does not exist, which counts as damage; None means "PATH does not exist".
    """
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedCheckpointError(missing or f"{path} does not exist") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error


def _checksum(document: Mapping[str, Any]) -> str:
    """Computes a checksum of the values, independent of JSON formatting."""
    contents = json.loads(json.dumps(document))
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()


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
                    raise ValueError(f"arrays must have a number type of NumPy, got {values.dtype} for {name!r}")
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, values, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
    return sha256(path)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Reads all arrays of an .npz file by name; raises an InputError if it is missing or damaged or cannot be read."""
    with _reading(path):
        try:
            with np.load(path) as arrays:
                return dict(arrays)
        except DAMAGED_NPZ as error:
            raise DamagedCheckpointError(f"{path} is damaged: {error}") from error


def sync_directory(directory: Path) -> None:
    """Syncs a directory to disk, so that renamed files survive a power failure, if the file system supports that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
