"""Averages checkpoints (section 6.1 of the paper: the last 5 or 20 of a run)."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from t2t_keras.config import Config
from t2t_keras.errors import InputError
from t2t_keras.machine import remote
from t2t_keras.runs import checkpoints
from t2t_keras.runs.checkpoints import Checkpoint
from t2t_keras.runs.run import Run, lasting_differences


def average(members: Sequence[Checkpoint]) -> dict[str, np.ndarray]:
    """Computes the mean of the weights of several checkpoints, summed in float64.

    Returns:
        Arrays by weight name, in the dtypes of the first checkpoint.

    Raises:
        InputError: the checkpoints were trained with different settings, or their weights differ in names or shapes.
    """
    first = members[0].weights
    sums = {name: array.astype(np.float64) for name, array in first.items()}
    for checkpoint in members[1:]:
        _check_same_settings(members[0], checkpoint)
        weights = checkpoint.weights
        mismatch = f"{checkpoint.path} does not fit {members[0].path}"
        if names := sorted(sums.keys() ^ weights.keys()):
            raise InputError(f"{mismatch}: only one of them has {', '.join(names[:5])}{' ...' * (len(names) > 5)}")
        for name, array in weights.items():
            if array.shape != sums[name].shape:
                raise InputError(f"{mismatch}: {name} has shape {array.shape} and {sums[name].shape}")
            sums[name] += array
    return {name: (total / len(members)).astype(first[name].dtype) for name, total in sums.items()}


def save(run: Run, members: Sequence[Checkpoint], name: str) -> Path:
    """Saves the average of checkpoints as a checkpoint of a run; raises as `average` and `checkpoints.save_weights`.

    Returns:
        The directory of the new checkpoint.
    """
    newest = max([*checkpoints.steps(run.checkpoints_path), *(member.step for member in members)])
    state = {"averaged": [remote.origin(member.path) for member in members], "config": run.config.to_dict()}
    return checkpoints.save_weights(run.checkpoints_path, name, newest, average(members), state)


def of_last_epochs(directory: str | Path, epochs: float) -> tuple[list[Checkpoint], float]:
    """Loads the checkpoints that a training saved in its last epochs.

    Args:
        directory: the run's `checkpoints` directory.
        epochs: number of passes over the training text before the newest checkpoint.

    Returns:
        The checkpoints in ascending order of their steps, and the number of epochs that they cover. It is less than
        `epochs` if older checkpoints were deleted.

    Raises:
        InputError: a checkpoint is damaged, or does not record how many epochs were made.
    """
    members: list[Checkpoint] = []
    for step in reversed(checkpoints.steps(directory)):
        checkpoint = checkpoints.load(Path(directory) / checkpoints.step_name(step), weights_only=True)
        if checkpoints.EPOCHS not in checkpoint.state:
            raise InputError(
                f"{checkpoint.path} does not record its epoch; select checkpoints by their number or names"
            )
        if members and _epochs(checkpoint) <= _epochs(members[0]) - epochs:
            return members[::-1], epochs
        members.append(checkpoint)
    span = _epochs(members[0]) - _epochs(members[-1]) if members else 0.0
    # Each checkpoint stands for the interval before it.
    return members[::-1], min(epochs, span * len(members) / max(len(members) - 1, 1))


def _epochs(checkpoint: Checkpoint) -> float:
    return checkpoint.state[checkpoints.EPOCHS]


def close_steps(steps: Sequence[int], interval: float) -> list[tuple[int, int]]:
    """Returns the pairs of consecutive steps that are closer than `interval`, in ascending order.

    A signal or the end of training saves an additional checkpoint, so that an average would count nearly the same
    weights twice.

    Args:
        steps: steps of the checkpoints to average.
        interval: the run's number of steps between checkpoints.
    """
    return [(first, second) for first, second in itertools.pairwise(sorted(steps)) if second - first < interval]


def excessive_span(steps: Sequence[int]) -> tuple[int, int] | None:
    """Returns the oldest and the newest step if the newest is more than twice the oldest, otherwise None.

    Over such a span the model still changes so much that the average is usually worse than the newest checkpoint.
    """
    oldest, newest = min(steps), max(steps)
    return (oldest, newest) if 2 * oldest < newest else None


def _check_same_settings(first: Checkpoint, other: Checkpoint) -> None:
    """Raises an InputError if the settings differ, because the checkpoints are then from different runs.

    The mean of weights that began from different initial values is not a usable model.
    """
    before, after = (checkpoint.state.get("config") for checkpoint in (first, other))
    if not before or not after:
        return  # saved without a configuration, so there is nothing to compare
    if changed := lasting_differences(Config.from_dict(before), Config.from_dict(after)):
        raise InputError(f"{other.path} was trained with different settings from {first.path}: {'; '.join(changed)}")
