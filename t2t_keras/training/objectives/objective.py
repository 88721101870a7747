"""What training asks of an objective, and the usual one: maximum likelihood of the references."""

from typing import NamedTuple, Protocol

import tensorflow as tf

from t2t_keras.tensor import Tensor
from t2t_keras.training.objectives.weighted_model import Pairs, WeightedModel


class Rows(NamedTuple):
    """Some rows of a batch, and what their losses depend on.

    Attributes:
        pairs: sources and targets; a row of zeros is no pair.
        scale: float32 scalar, 1 / (target tokens of the global batch).
        seed: int32 [2], of dropout.
        step: int64 scalar, number of updates before this one.
    """

    pairs: Pairs
    scale: Tensor
    seed: Tensor
    step: Tensor


class Objective(Protocol):
    """A loss of rows that adds up over all parts of a global batch, whatever the parts.

    Attributes:
        measures: names of means per target token that it reports besides the loss.
    """

    measures: tuple[str, ...]

    def __call__(self, model: WeightedModel, matrices: list[Tensor], rows: Rows) -> tuple[Tensor, list[Tensor]]:
        """The scaled sums of the loss and of the measures, float32 [1 + measures], and the gradients of the loss."""


class Likelihood:
    """The label-smoothed cross-entropy and the model's auxiliary loss, with dropout; see `Objective`."""

    measures: tuple[str, ...] = ()

    def __init__(self, label_smoothing: float) -> None:
        self._label_smoothing = label_smoothing

    def __call__(self, model: WeightedModel, matrices: list[Tensor], rows: Rows) -> tuple[Tensor, list[Tensor]]:
        loss, gradients = model.likelihood(matrices, rows.pairs, rows.scale, self._label_smoothing, rows.seed)
        return tf.expand_dims(loss * rows.scale, 0), gradients
