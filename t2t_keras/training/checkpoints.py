"""Checkpoints: saved whole or not at all, verified when read.

A checkpoint is one directory, `checkpoints/step_00001000`, that takes its name
once everything in it is on the disk:

    weights.npz     name -> array
    optimizer.npz   name -> array; absent where only weights were saved
    ema.npz         name -> array; only with an exponential moving average
    state.json      format, step, the trainer's state, the sha256 of each file, a checksum of all this

Beside them `best.json` names the best step, and `averaged_*` hold averages.
Arrays go in and arrays come out: nothing here knows TensorFlow.
"""

import dataclasses
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.data.writing import replacing
from t2t_keras.errors import InputError
from t2t_keras.training.array_files import read_arrays, sha256, sync_directory, write_arrays

Arrays = Mapping[str, np.ndarray]

_FORMAT = 2
_FORMATS = (1, 2)  # that can be read; in the first, state.json had no checksum
_STATE = "state.json"
_BEST = "best.json"
_TEMPORARY = ".tmp_"
_STEP_NAME = re.compile(r"step_(\d{8,})")
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


@dataclasses.dataclass(frozen=True)
class Best:
    """Which checkpoint is the best, and by what.

    Attributes:
        step: of the checkpoint.
        metric: "loss" or "bleu".
        value: of that metric.
    """

    step: int
    metric: str
    value: float


def save(
    directory: str | Path,
    step: int,
    weights: Arrays,
    optimizer: Arrays,
    state: Mapping[str, Any],
    ema: Arrays | None = None,
) -> Path:
    """Saves a checkpoint under `step_XXXXXXXX`; what an interrupted save left behind is removed.

    Args:
        directory: the run's `checkpoints` folder; made if missing.
        step: updates made so far.
        weights: the model's weights by name.
        optimizer: the optimizer's variables by name.
        state: whatever else resuming needs (epoch, batch, seed), as JSON takes it.
        ema: the moving average of the weights by name.

    Returns:
        The checkpoint's directory.

    Raises:
        InputError: it cannot be written, for example because the disk is full; earlier checkpoints are untouched.
    """
    files = {"weights.npz": weights, "optimizer.npz": optimizer}
    if ema is not None:
        files["ema.npz"] = ema
    return _write(Path(directory), step_name(step), step, files, state)


def save_weights(directory: str | Path, name: str, step: int, weights: Arrays, state: Mapping[str, Any]) -> Path:
    """Saves weights alone under a name of their own, for translating.

    Args:
        directory: the run's `checkpoints` folder.
        name: of the new directory in it.
        step: the newest step that went into the weights.
        weights: by name.
        state: where they come from, as JSON takes it.

    Returns:
        The checkpoint's directory.

    Raises:
        InputError: the name is that of a step or of no file, or the files cannot be written.
    """
    if not re.fullmatch(r"\w[\w.+-]*", name) or _STEP_NAME.fullmatch(name) or name in ("best", "latest"):
        raise InputError(
            f"{name!r} cannot name a checkpoint; use letters, digits, '_', '-', for example averaged_last10"
        )
    return _write(Path(directory), name, step, {"weights.npz": weights}, state)


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


def latest(directory: str | Path, weights_only: bool = False) -> Checkpoint | None:
    """The newest checkpoint that verifies; a damaged one is passed over with a warning.

    Args:
        directory: the run's `checkpoints` folder.
        weights_only: leave the optimizers' files unverified.

    Returns:
        The checkpoint, or None if there is none at all.

    Raises:
        InputError: there are checkpoints, but all are damaged.
    """
    damaged: list[str] = []
    for step in reversed(steps(directory)):
        try:
            checkpoint = load(Path(directory) / step_name(step), weights_only)
        except InputError as error:
            damaged.append(str(error))
            continue
        for message in damaged:
            logging.getLogger(__name__).warning("%s; using %s instead", message, checkpoint.path)
        return checkpoint
    if damaged:
        raise InputError(f"no checkpoint in {directory} can be used: {'; '.join(damaged)}")
    return None


def resolve(directory: str | Path, name: str | None = None) -> Path:
    """The checkpoint that a name stands for.

    Args:
        directory: the run's `checkpoints` folder.
        name: "latest", "best", a step number, the name of a directory in the folder (such as "averaged_last10"), or
            the path of a checkpoint. None means the newest average, unless training has gone on since: then "latest".

    Returns:
        The path of its directory, for `load`.

    Raises:
        InputError: there is none of that name; says which there are.
    """
    directory = Path(directory)
    if name is None:
        path = _newest_average(directory) or _latest_path(directory)
    elif name == "latest":
        path = _latest_path(directory)
    else:
        path = _named(directory, name)
    if path is None:
        names = ["best"] * (best(directory) is not None) + _other_names(directory)
        numbers = ", ".join(map(str, steps(directory)))
        raise InputError(
            f"no checkpoint {name or 'latest'!r} in {directory}; steps there: {numbers or 'none'}; "
            f"names there: {', '.join(names) or 'none'}"
        )
    return path


def steps(directory: str | Path) -> list[int]:
    """The steps of which there are checkpoints, rising; whether they are whole is not looked at."""
    directory = Path(directory)
    if not directory.is_dir():
        return []
    matches = (_STEP_NAME.fullmatch(entry.name) for entry in directory.iterdir() if entry.is_dir())
    return sorted(int(match[1]) for match in matches if match)


def step_name(step: int) -> str:
    """The name of a step's directory."""
    return f"step_{step:08d}"


def prune(directory: str | Path, keep: int, newest: int | None = None) -> list[int]:
    """Deletes all but the newest checkpoints and the best one.

    Args:
        directory: the run's `checkpoints` folder.
        keep: how many of the newest stay; at least 1.
        newest: the step of the last good one; those after it are damaged, were passed over and go too.

    Returns:
        The steps that were deleted.
    """
    if keep < 1:
        raise ValueError(f"keep must be at least 1, got {keep}")
    directory = Path(directory)
    pointer = best(directory)
    found = steps(directory)
    kept = [step for step in found if newest is None or step <= newest][-keep:]
    deleted = [step for step in found if step not in kept and (pointer is None or step != pointer.step)]
    for step in deleted:
        _discard(directory / step_name(step))
    return deleted


def remove_leftovers(directory: str | Path) -> None:
    """Removes what a trainer that was killed left half written or half deleted; only for whoever holds the run.

    Args:
        directory: the run's `checkpoints` folder; it need not exist.
    """
    for stale in Path(directory).glob(f"{_TEMPORARY}step_*"):
        shutil.rmtree(stale)
    for stale in Path(directory).glob(f".{_BEST}.*.tmp"):
        stale.unlink()


def set_best(directory: str | Path, step: int, metric: str, value: float) -> None:
    """Notes that a saved checkpoint is the best so far; `prune` leaves it alone from now on."""
    path = Path(directory) / step_name(step)
    if not path.is_dir():
        raise ValueError(f"step must have a checkpoint to be the best, got {step} without {path}")
    with replacing(Path(directory) / _BEST) as file:
        json.dump(dataclasses.asdict(Best(step, metric, float(value))), file)


def best(directory: str | Path) -> Best | None:
    """What `set_best` noted last, or None.

    Raises:
        InputError: the note is damaged.
    """
    path = Path(directory) / _BEST
    try:
        return Best(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise InputError(f"{path} is damaged: {error}; delete it to go on without a best checkpoint") from error


def _latest_path(directory: Path) -> Path | None:
    checkpoint = latest(directory, weights_only=True)
    return checkpoint.path if checkpoint else None


def _newest_average(directory: Path) -> Path | None:
    """The average that reaches furthest, unless there is a step beyond it."""
    averages = [load(directory / name, weights_only=True) for name in _other_names(directory)]
    newest = max(averages, key=lambda average: average.step, default=None)
    return newest.path if newest and newest.step >= max(steps(directory), default=0) else None


def _named(directory: Path, name: str) -> Path | None:
    """The directory of any name but "latest"; None if there is none."""
    if name == "best":
        pointer = best(directory)
        paths = [directory / step_name(pointer.step)] if pointer else []
    elif name.isascii() and name.isdigit():
        paths = [directory / step_name(int(name))]
    else:
        paths = [directory / name, Path(name)]
    return next((path for path in paths if (path / _STATE).is_file()), None)


def _other_names(directory: Path) -> list[str]:
    """The checkpoints that are not a step's."""
    if not directory.is_dir():
        return []
    names = (entry.parent.name for entry in directory.glob(f"*/{_STATE}"))
    return sorted(name for name in names if not name.startswith(_TEMPORARY) and not _STEP_NAME.fullmatch(name))


def _write(directory: Path, name: str, step: int, files: Mapping[str, Arrays], state: Mapping[str, Any]) -> Path:
    """Writes a checkpoint under a temporary name, then renames it."""
    path = directory / name
    temporary = directory / f"{_TEMPORARY}{name}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _remove_stale(directory, name)
        temporary.mkdir()
        checksums = {file: write_arrays(temporary / file, arrays) for file, arrays in files.items()}
        document = {"format": _FORMAT, "step": step, "state": dict(state), "sha256": checksums}
        with replacing(temporary / _STATE) as file:
            json.dump({**document, "checksum": _checksum(document)}, file, indent=1)
        if path.exists():
            _discard(path)  # the same step again, after a resumption
        os.rename(temporary, path)
    except OSError as error:
        raise InputError(
            f"cannot save checkpoint {path}: {error.strerror or error}; the earlier ones are as they were"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    sync_directory(directory)
    return path


def _read_document(path: Path) -> dict[str, Any]:
    """What state.json of a checkpoint holds, verified; raises an InputError if it is missing or damaged."""
    try:
        document = json.loads((path / _STATE).read_text(encoding="utf-8"))
        found, _, _, _ = (document[key] for key in ("format", "step", "state", "sha256"))
        is_damaged = found == _FORMAT and document.pop("checksum") != _checksum(document)
    except FileNotFoundError:
        raise InputError(f"{path} is not a checkpoint: it has no {_STATE}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path / _STATE} is damaged: {error}") from error
    if found not in _FORMATS:
        raise InputError(f"{path / _STATE} has format {found!r}; this version of t2t_keras reads up to {_FORMAT}")
    if is_damaged:
        raise InputError(f"{path / _STATE} is damaged: it does not match its checksum")
    return document


def _checksum(document: Mapping[str, Any]) -> str:
    """Of what a document says, however JSON is spaced."""
    as_read = json.loads(json.dumps(document))
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()


def _remove_stale(directory: Path, name: str) -> None:
    """Removes what interrupted writers of such checkpoints left; a running average's is not a trainer's to remove."""
    pattern = f"{_TEMPORARY}step_*" if _STEP_NAME.fullmatch(name) else f"{_TEMPORARY}{name}"
    for stale in directory.glob(pattern):
        shutil.rmtree(stale)


def _discard(path: Path) -> None:
    """Deletes a checkpoint, which is out of sight before its first file goes."""
    doomed = path.with_name(f"{_TEMPORARY}{path.name}.deleted")
    os.rename(path, doomed)
    shutil.rmtree(doomed)
