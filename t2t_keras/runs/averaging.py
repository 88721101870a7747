"""Averages checkpoints (section 6.1 of the paper: the last 5 or 20 of a run)."""

import itertools
from collections.abc import Sequence

import numpy as np

from t2t_keras.config import Config
from t2t_keras.errors import InputError
from t2t_keras.runs.checkpoints import Checkpoint
from t2t_keras.runs.run import lasting_differences


def average(checkpoints: Sequence[Checkpoint]) -> dict[str, np.ndarray]:
    """Computes the mean of the weights of several checkpoints, summed in float64.

    Returns:
        Arrays by weight name, in the dtypes of the first checkpoint.

    Raises:
        InputError: the checkpoints were trained with different settings, or their weights differ in names or shapes.
    """
    first = checkpoints[0].weights
    sums = {name: array.astype(np.float64) for name, array in first.items()}
    for checkpoint in checkpoints[1:]:
        _check_same_settings(checkpoints[0], checkpoint)
        weights = checkpoint.weights
        mismatch = f"{checkpoint.path} does not fit {checkpoints[0].path}"
        if names := sorted(sums.keys() ^ weights.keys()):
            raise InputError(f"{mismatch}: only one of them has {', '.join(names[:5])}{' ...' * (len(names) > 5)}")
        for name, array in weights.items():
            if array.shape != sums[name].shape:
                raise InputError(f"{mismatch}: {name} has shape {array.shape} and {sums[name].shape}")
            sums[name] += array
    return {name: (total / len(checkpoints)).astype(first[name].dtype) for name, total in sums.items()}


def crowded(steps: Sequence[int], interval: float) -> list[tuple[int, int]]:
    """Returns the pairs of consecutive steps that are closer than `interval`, in ascending order.

    A signal or the end of training saves an additional checkpoint, so that an average would count nearly the same
    weights twice.

    Args:
        steps: steps of the checkpoints to average.
        interval: the run's number of steps between checkpoints.
    """
    return [(first, second) for first, second in itertools.pairwise(sorted(steps)) if second - first < interval]


def reach(steps: Sequence[int]) -> tuple[int, int] | None:
    """Returns the oldest and the newest step if the newest is more than twice the oldest, otherwise None.

    Over such a span the model still changes so much that the average is usually worse than the newest checkpoint.
    """
    oldest, newest = min(steps), max(steps)
    return (oldest, newest) if 2 * oldest < newest else None


def _check_same_settings(first: Checkpoint, other: Checkpoint) -> None:
    """Raises an InputError if the settings differ, because the checkpoints are then from different runs.

    The mean of runs with different initial weights does not translate.
    """
    before, after = (checkpoint.state.get("config") for checkpoint in (first, other))
    if not before or not after:
        return  # saved without a configuration, so there is nothing to compare
    if changed := lasting_differences(Config.from_dict(before), Config.from_dict(after)):
        raise InputError(f"{other.path} was trained with other settings than {first.path}: {'; '.join(changed)}")
