"""The checkpoints of a run: saved, found, kept or deleted.

The folder `checkpoints` has a directory for each step, `step_00001000` (see `checkpoint_files`), and `averaged_*` for
averages; `best.json` names the best step.
"""

import dataclasses
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_keras.errors import InputError
from t2t_keras.machine.files import read_json, read_note, write_json
from t2t_keras.machine.locking import locked
from t2t_keras.runs import checkpoint_files
from t2t_keras.runs.checkpoint_files import STATE, STEP_NAME, TEMPORARY, Arrays, Checkpoint, load, step_name

_BEST = "best.json"
_ORDER = "order"  # in the state of an average: how many were made until then


@dataclasses.dataclass(frozen=True)
class Best:
    """The best checkpoint so far.

    Attributes:
        step: step of the checkpoint.
        metric: "loss", or the task's score, such as "bleu".
        value: its value of the metric.
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
    """Saves a checkpoint as `step_XXXXXXXX` in the run's `checkpoints` folder, and returns its directory.

    Arrays are by name, `ema` is the moving average of the weights; `state` has what else resuming needs (epoch, batch,
    seed), as JSON values. Raises as `checkpoint_files.write`, which also removes leftovers of interrupted saves.
    """
    files = {"weights.npz": weights, "optimizer.npz": optimizer}
    if ema is not None:
        files["ema.npz"] = ema
    return checkpoint_files.write(Path(directory), step_name(step), step, files, state)


def save_weights(directory: str | Path, name: str, step: int, weights: Arrays, state: Mapping[str, Any]) -> Path:
    """Saves only weights under `name`, for translating, and returns the checkpoint's directory.

    `step` is the newest one there is, of which training may go on; `state` (JSON values) says where the weights come
    from. An InputError says that the name is a step's or not valid for a file, that the files cannot be written, or
    that another process is saving weights there.
    """
    is_taken = STEP_NAME.fullmatch(name) or name in ("best", "latest", _BEST) or name.isdigit()
    if is_taken or not re.fullmatch(r"\w[\w.+-]*", name):
        raise InputError(
            f"{name!r} cannot name a checkpoint; use letters, digits, '_', '-', for example averaged_last10"
        )
    # Two processes would share the temporary directory of a name; each of them removes what it finds there.
    with locked(Path(directory), verb="save weights", participle="written", flag="--model_dir"):
        others = [Path(directory) / other / STATE for other in _other_names(Path(directory)) if other != name]
        state = {**state, _ORDER: 1 + max((_order(read_note(path).get("state")) for path in others), default=0)}
        return checkpoint_files.write(Path(directory), name, step, {"weights.npz": weights}, state)


def latest(directory: str | Path, weights_only: bool = False) -> Checkpoint | None:
    """The newest intact checkpoint, or None if there are none at all; damaged ones are skipped with a warning.

    An InputError says that all are damaged.
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
    """The directory of the checkpoint that a name stands for, to be passed to `load`.

    Args:
        directory: the run's `checkpoints` folder.
        name: "latest", "best", a step number, the name of a directory in the folder (such as "averaged_last10"), or the
            path of a checkpoint. None means the newest average, or "latest" if training went on since.

    Raises:
        InputError: there is no checkpoint of that name; lists those there are.
    """
    directory = Path(directory)
    if name is None:
        path = _newest_average(directory) or _latest_path(directory)
    elif name == "latest":
        path = _latest_path(directory)
    else:
        path = _named(directory, name)
    if path is None:
        names = ["best"] * (_named(directory, "best") is not None) + _other_names(directory)
        numbers = ", ".join(map(str, steps(directory)))
        raise InputError(
            f"no checkpoint {'latest' if name is None else name!r} in {directory}; steps there: {numbers or 'none'}; "
            f"names there: {', '.join(names) or 'none'}"
        )
    return path


def steps(directory: str | Path) -> list[int]:
    """The steps that have checkpoints, rising; these are not verified."""
    directory = Path(directory)
    if not directory.is_dir():
        return []
    matches = (STEP_NAME.fullmatch(entry.name) for entry in directory.iterdir() if entry.is_dir())
    return sorted(int(match[1]) for match in matches if match)


def newest_paths(directory: str | Path, count: int) -> list[Path]:
    """The directories of so many of the newest steps, or of all there are, rising."""
    return [Path(directory) / step_name(step) for step in steps(directory)[-count:]]


def exist(directory: str | Path) -> bool:
    """Whether a folder has any checkpoint, of a step or with another name."""
    return bool(steps(directory) or _other_names(Path(directory)))


def prune(directory: str | Path, keep: int, newest: int | None = None) -> list[int]:
    """Deletes all but the `keep` (at least 1) newest checkpoints and the best one; returns the deleted steps.

    `newest` is the step of the last good checkpoint: later ones are damaged and deleted too. An InputError says that
    the note of the best one is damaged.
    """
    if keep < 1:
        raise ValueError(f"keep must be at least 1, got {keep}")
    directory = Path(directory)
    pointer = best(directory)
    saved_steps = steps(directory)
    kept = [step for step in saved_steps if newest is None or step <= newest][-keep:]
    deleted = [step for step in saved_steps if step not in kept and (pointer is None or step != pointer.step)]
    for step in deleted:
        checkpoint_files.discard(directory / step_name(step))
    return deleted


def remove_leftovers(directory: str | Path) -> None:
    """Removes what a killed trainer left half written or half deleted; the caller must hold the run's lock."""
    checkpoint_files.remove_leftovers(Path(directory), checkpoint_files.EVERY_STEP)
    for stale in Path(directory).glob(f".{_BEST}.*.tmp"):
        stale.unlink()


def discard(directory: str | Path, step: int) -> None:
    """Deletes the checkpoint of a step if it exists."""
    path = Path(directory) / step_name(step)
    if path.exists():
        checkpoint_files.discard(path)


def replace_state(directory: str | Path, step: int, state: Mapping[str, Any]) -> None:
    """Replaces the state of a step's checkpoint atomically; see `checkpoint_files.replace_state`."""
    checkpoint_files.replace_state(Path(directory) / step_name(step), state)


def set_best(directory: str | Path, step: int, metric: str, value: float) -> None:
    """Notes that a saved checkpoint is the best so far, so that `prune` keeps it."""
    path = Path(directory) / step_name(step)
    if not path.is_dir():
        raise ValueError(f"step must have a checkpoint to be the best, got {step} without {path}")
    write_json(Path(directory) / _BEST, dataclasses.asdict(Best(step, metric, float(value))))


def best(directory: str | Path) -> Best | None:
    """The best checkpoint as noted by `set_best`, or None; raises an InputError if the note is damaged."""
    advice = "; delete it to go on without a best checkpoint"
    return read_json(Path(directory) / _BEST, lambda noted: Best(**noted), advice)


def _latest_path(directory: Path) -> Path | None:
    checkpoint = latest(directory, weights_only=True)
    return checkpoint.path if checkpoint else None


def _newest_average(directory: Path) -> Path | None:
    """The newest intact average, unless there is a later step; logs a warning for damaged ones."""
    averages = []
    for name in _other_names(directory):
        try:
            averages.append(load(directory / name, weights_only=True))
        except InputError as error:
            logging.getLogger(__name__).warning("%s; it is passed over", error)
    newest = max(averages, key=lambda average: (average.step, _order(average.state)), default=None)
    return newest.path if newest and newest.step >= max(steps(directory), default=0) else None


def _order(state: Mapping[str, Any] | None) -> int:
    return state.get(_ORDER, 0) if isinstance(state, Mapping) else 0


def _named(directory: Path, name: str) -> Path | None:
    """The directory of a name other than "latest"; None if it does not exist."""
    if name == "best":
        pointer = best(directory)
        paths = [directory / step_name(pointer.step)] if pointer else []
    elif name.isascii() and name.isdigit():
        paths = [directory / step_name(int(name))]
    else:
        paths = [directory / name, Path(name)]
    return next((path for path in paths if (path / STATE).is_file()), None)


def _other_names(directory: Path) -> list[str]:
    """The names of checkpoints other than those of steps."""
    if not directory.is_dir():
        return []
    names = (entry.parent.name for entry in directory.glob(f"*/{STATE}"))
    return sorted(name for name in names if not name.startswith(TEMPORARY) and not STEP_NAME.fullmatch(name))
