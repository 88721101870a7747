"""Saves, finds and deletes the checkpoints of a run.

The run's directory `checkpoints` contains a directory per step, such as `step_00001000` (see `checkpoint_files`),
directories of averages, such as `averaged_last5`, and `best.json`, which names the best step.
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
_ORDER = "order"  # key in the state of an average, for a number that grows with each new average


@dataclasses.dataclass(frozen=True)
class Best:
    """The best checkpoint so far.

    Attributes:
        step: step of the checkpoint.
        metric: "loss", or the task's score, such as "bleu".
        value: value of the metric.
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
    return checkpoint_files.write(Path(directory), step_name(step), step, files, state)


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
    is_taken = STEP_NAME.fullmatch(name) or name in ("best", "latest", _BEST) or name.isdigit()
    if is_taken or not re.fullmatch(r"\w[\w.+-]*", name):
        raise InputError(
            f"{name!r} cannot name a checkpoint; use letters, digits, '_', '-', for example averaged_last10"
        )
    # Two processes that save the same name would use, and first remove, the same temporary directory.
    with locked(Path(directory), verb="save weights", participle="written", flag="--model_dir"):
        others = [Path(directory) / other / STATE for other in _other_names(Path(directory)) if other != name]
        state = {**state, _ORDER: 1 + max((_order(read_note(path).get("state")) for path in others), default=0)}
        return checkpoint_files.write(Path(directory), name, step, {"weights.npz": weights}, state)


def latest(directory: str | Path, weights_only: bool = False) -> Checkpoint | None:
    """Returns the newest intact checkpoint of a step, or None if there are no checkpoints of steps.

    Damaged checkpoints are skipped with a warning.

    Args:
        directory: the run's `checkpoints` directory.
        weights_only: as in `checkpoint_files.load`.

    Raises:
        InputError: all checkpoints are damaged.
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
    """Returns the directory of the checkpoint with a given name, for `load`.

    Args:
        directory: the run's `checkpoints` directory.
        name: "latest", "best", a step number, the name of a directory in `directory` (such as "averaged_last10"), or
            the path of a checkpoint. None means the newest average, or "latest" if there is a later step.

    Raises:
        InputError: the checkpoint does not exist (lists the existing ones), `best.json` is damaged, or all checkpoints
            are damaged.
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
    return bool(steps(directory) or _other_names(Path(directory)))


def prune(directory: str | Path, keep: int, newest: int | None = None) -> list[int]:
    """Deletes the checkpoints of all steps except for the newest ones and the best one.

    Args:
        directory: the run's `checkpoints` directory.
        keep: number of newest checkpoints to keep, at least 1.
        newest: step of the newest good checkpoint, if known. Later ones are damaged and are deleted too.

    Returns:
        The deleted steps, in ascending order.

    Raises:
        InputError: `best.json` is damaged.
        ValueError: `keep` is less than 1.
        OSError: a checkpoint cannot be deleted.
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
    """Removes what a killed trainer has only partly written or deleted; the caller must hold the run's lock."""
    checkpoint_files.remove_leftovers(Path(directory), checkpoint_files.EVERY_STEP)
    for stale in Path(directory).glob(f".{_BEST}.*.tmp"):
        stale.unlink()


def discard(directory: str | Path, step: int) -> None:
    """Deletes the checkpoint of a step if it exists; raises an OSError if that fails."""
    path = Path(directory) / step_name(step)
    if path.exists():
        checkpoint_files.discard(path)


def replace_state(directory: str | Path, step: int, state: Mapping[str, Any]) -> None:
    """Replaces the state in the checkpoint of a step; see `checkpoint_files.replace_state`."""
    checkpoint_files.replace_state(Path(directory) / step_name(step), state)


def set_best(directory: str | Path, step: int, metric: str, value: float) -> None:
    """Records in `best.json` that a saved checkpoint is the best so far, so that `prune` keeps it.

    Raises:
        ValueError: the step has no checkpoint.
        OSError: the file cannot be written.
    """
    path = Path(directory) / step_name(step)
    if not path.is_dir():
        raise ValueError(f"step must have a checkpoint to be the best, got {step} without {path}")
    write_json(Path(directory) / _BEST, dataclasses.asdict(Best(step, metric, float(value))))


def best(directory: str | Path) -> Best | None:
    """Returns the best checkpoint that `set_best` recorded, or None; raises an InputError if the file is damaged."""
    advice = "; delete it to go on without a best checkpoint"
    return read_json(Path(directory) / _BEST, lambda noted: Best(**noted), advice)


def _latest_path(directory: Path) -> Path | None:
    checkpoint = latest(directory, weights_only=True)
    return checkpoint.path if checkpoint else None


def _newest_average(directory: Path) -> Path | None:
    """Returns the newest intact average, or None if there is a later step; logs a warning for damaged averages."""
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
    """Returns the directory of a checkpoint by a name other than "latest"; None if it does not exist."""
    if name == "best":
        pointer = best(directory)
        paths = [directory / step_name(pointer.step)] if pointer else []
    elif name.isascii() and name.isdigit():
        paths = [directory / step_name(int(name))]
    else:
        paths = [directory / name, Path(name)]
    return next((path for path in paths if (path / STATE).is_file()), None)


def _other_names(directory: Path) -> list[str]:
    """Returns the names of the checkpoints that are not of steps."""
    if not directory.is_dir():
        return []
    names = (entry.parent.name for entry in directory.glob(f"*/{STATE}"))
    return sorted(name for name in names if not name.startswith(TEMPORARY) and not STEP_NAME.fullmatch(name))
