"""Averages of checkpoints (section 6.1 of the paper: the last 5 or 20 of a run)."""

import itertools
from collections.abc import Sequence

import numpy as np

from t2t_keras.config import Config
from t2t_keras.errors import InputError
from t2t_keras.runs.checkpoints import Checkpoint
from t2t_keras.runs.run import lasting_differences


def average(checkpoints: Sequence[Checkpoint]) -> dict[str, np.ndarray]:
    """The mean of the weights of several checkpoints, summed in float64: name -> array with the first one's dtypes.

    An InputError says that they were trained with different settings, or that weights differ in names or shapes.
    """
    first = checkpoints[0].weights
    sums = {name: array.astype(np.float64) for name, array in first.items()}
    for checkpoint in checkpoints[1:]:
        _check_same_settings(checkpoints[0], checkpoint)
        weights = checkpoint.weights
        where = f"{checkpoint.path} does not fit {checkpoints[0].path}"
        if odd := sorted(sums.keys() ^ weights.keys()):
            raise InputError(f"{where}: only one of them has {', '.join(odd[:5])}{' ...' * (len(odd) > 5)}")
        for name, array in weights.items():
            if array.shape != sums[name].shape:
                raise InputError(f"{where}: {name} has shape {array.shape} and {sums[name].shape}")
            sums[name] += array
    return {name: (total / len(checkpoints)).astype(first[name].dtype) for name, total in sums.items()}


def crowded(steps: Sequence[int], interval: float) -> list[tuple[int, int]]:
    """Neighbouring steps, as rising pairs, that are closer than `interval`, the run's steps between checkpoints.

    When a signal or the end of training saves an additional checkpoint, an average would count that place twice.
    """
    return [(first, second) for first, second in itertools.pairwise(sorted(steps)) if second - first < interval]


def reach(steps: Sequence[int]) -> tuple[int, int] | None:
    """The oldest and the newest of steps that reach far back into training, else None.

    Far is where the newest has more than twice the updates of the oldest: as long as a model changes that much, early
    weights usually make an average worse than the newest alone.
    """
    oldest, newest = min(steps), max(steps)
    return (oldest, newest) if 2 * oldest < newest else None


def _check_same_settings(first: Checkpoint, other: Checkpoint) -> None:
    """Rejects a checkpoint of another run, because a mean of runs with other initial weights does not translate."""
    before, after = (checkpoint.state.get("config") for checkpoint in (first, other))
    if not before or not after:
        return  # saved without a configuration
    if changed := lasting_differences(Config.from_dict(before), Config.from_dict(after)):
        raise InputError(f"{other.path} was trained with other settings than {first.path}: {'; '.join(changed)}")
