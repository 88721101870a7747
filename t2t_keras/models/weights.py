"""Access to a model's weights by name."""

import fnmatch
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from t2t_keras.errors import InputError
from t2t_keras.models.contract import SequenceModel

_Spellings = Sequence[Sequence[int]]

_MAX_NAMES = 20  # number of names in a `WeightAccount`
_MAX_NAMES_IN_ERROR = 3


def weight_names(model: SequenceModel) -> list[str]:
    """Stable names of a model's trainable weights, in order: their paths below the model.

    Raises:
        ValueError: two weights have the same name.
    """
    return _names(model, model.trainable_variables)


def named_weights(model: SequenceModel) -> dict[str, Any]:
    """All weights by name, including those that are not trainable; raises as `weight_names`."""
    return dict(zip(_names(model, model.weights), model.weights, strict=True))


def _names(model: SequenceModel, weights: Sequence[Any]) -> list[str]:
    names = [weight.path.removeprefix(f"{model.path}/") for weight in weights]  # the model's path may differ
    if duplicates := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"weights must have different paths, got several {', '.join(duplicates[:5])}: name the layers")
    return names


def frozen_names(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The names that match any of the patterns, in which * matches any characters.

    Raises:
        InputError: a pattern matches no name, or the patterns match all names.
    """
    matches = {pattern: [name for name in names if fnmatch.fnmatchcase(name, pattern)] for pattern in patterns}
    for pattern in (pattern for pattern, matching_names in matches.items() if not matching_names):
        raise InputError(f"train.frozen: no weight has a name that matches {pattern!r}; names: {_list(names)}")
    frozen = [name for name in names if any(name in matching_names for matching_names in matches.values())]
    if len(frozen) == len(names):
        raise InputError(f"train.frozen={','.join(patterns)} freezes all weights")
    return frozen


def assign_weights(model: SequenceModel, weights: dict) -> None:
    """Sets the weights of a built model from float32 arrays by name; raises as `check_weights`."""
    check_weights(model, weights)
    for name, variable in zip(weight_names(model), model.trainable_variables, strict=True):
        variable.assign(weights[name])


class WeightAccount(NamedTuple):
    """An account of the weights that were copied from one model to another.

    Attributes:
        copied: weights of both models, with their numbers of elements by name.
        new: weights that only this model has, likewise.
        unused: weights that only the other model has, likewise.
        rows: number of rows, by name, that were added to weights of both models for new vocabulary entries.
    """

    copied: dict[str, int]
    new: dict[str, int]
    unused: dict[str, int]
    rows: dict[str, int]

    def lines(self) -> list[str]:
        """Describes each kind on one line, with the names of weights that are not shared."""
        names = {"new": self.new, "not used": self.unused}
        lines = [f"copied: {_amount(self.copied)}"]
        if self.rows:
            count = max(self.rows.values())
            lines.append(f"{count:,} new entries of the vocabulary, means of their pieces: {_list(self.rows)}")
        return lines + [f"{kind}: {_amount(sizes)}{': ' * bool(sizes)}{_list(sizes)}" for kind, sizes in names.items()]


def assign_known_weights(
    model: SequenceModel, weights: dict, spelled: tuple[_Spellings, _Spellings] = ((), ())
) -> WeightAccount:
    """Sets the weights of a built model for which there are arrays; other weights keep their values.

    Args:
        model: the model.
        weights: float32 arrays by name.
        spelled: for the target and the source vocabulary, a list with an item for each entry that was added at the end:
            the ids of the old entries that spell it. The row of a new entry is the mean of their rows.

    Returns:
        The account of these weights.

    Raises:
        InputError: no name matches, or a shape differs; the message names the first such weights. Nothing is set then.
    """
    variables = dict(zip(weight_names(model), model.trainable_variables, strict=True))
    common_names = [name for name in variables if name in weights]
    shapes = {name: (tuple(weights[name].shape), tuple(variables[name].shape)) for name in common_names}
    new_rows = {}
    for name, (array_shape, variable_shape) in shapes.items():
        is_source_table = name.startswith("source_embedding/")
        spellings = spelled[1 if is_source_table else 0]
        if not spellings:
            continue
        size = model.config.source_entries if is_source_table else model.config.vocab_size
        if (array_shape[:1], variable_shape[:1]) == ((size - len(spellings),), (size,)):
            new_rows[name] = spellings
    for name, spellings in new_rows.items():
        rows = [weights[name][list(ids)].mean(axis=0) for ids in spellings]
        weights = {**weights, name: np.concatenate([weights[name], rows])}
        shapes[name] = (tuple(weights[name].shape), shapes[name][1])
    if mismatches := [
        f"{name} {array_shape} -> {variable_shape}"
        for name, (array_shape, variable_shape) in shapes.items()
        if array_shape != variable_shape
    ]:
        raise InputError(f"weights with different shapes cannot be copied: {_list(mismatches, _MAX_NAMES_IN_ERROR)}")
    if not common_names:
        raise InputError("no weight can be copied: no name matches a weight of the model")
    for name in common_names:
        variables[name].assign(weights[name])
    return WeightAccount(
        copied={name: weights[name].size for name in common_names},
        new={name: math.prod(variable.shape) for name, variable in variables.items() if name not in weights},
        unused={name: array.size for name, array in weights.items() if name not in variables},
        rows={name: len(spellings) for name, spellings in new_rows.items()},
    )


def _amount(sizes: dict[str, int]) -> str:
    plural = "s" * (len(sizes) != 1)
    return f"{len(sizes):,} weight{plural} ({sum(sizes.values()):,} parameters)" if sizes else "none"


def _list(names: Iterable[str], limit: int = _MAX_NAMES) -> str:
    """Joins the names, or the first ones if there are many."""
    names = list(names)
    rest = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest


def check_weights(model: SequenceModel, arrays: dict, part: str = "weights") -> None:
    """Checks that the names and shapes of a checkpoint's arrays match a built model.

    Args:
        model: the model.
        arrays: arrays by name.
        part: the part of the checkpoint that the message names.

    Raises:
        InputError: a name is missing or unknown, or a shape differs.
    """
    variables = dict(zip(weight_names(model), model.trainable_variables, strict=True))
    if variables.keys() != set(arrays):
        names = sorted(variables.keys() ^ set(arrays))
        raise InputError(
            f"the checkpoint contains the {part} of a different model; they differ in {', '.join(names[:5])}"
        )
    for name, variable in variables.items():
        if tuple(variable.shape) != tuple(arrays[name].shape):
            raise InputError(
                f"the checkpoint's {name} has shape {tuple(arrays[name].shape)}, the model's {tuple(variable.shape)}"
            )
