"""The interface of a training objective, and the default objective, maximum likelihood of the references."""

from typing import NamedTuple, Protocol

import tensorflow as tf

from t2t_keras.tensor import Tensor
from t2t_keras.training.consistency import Consistency
from t2t_keras.training.objectives.stateless_model import Pairs, StatelessModel


class Rows(NamedTuple):
    """Rows of a batch, and the other inputs of their loss.

    Attributes:
        pairs: sources and targets; a row of zeros is padding.
        scale: float32 scalar, 1 / (number of target tokens in the global batch).
        seed: int32 [2], seed of the dropout.
        step: int64 scalar, number of updates before this one.
    """

    pairs: Pairs
    scale: Tensor
    seed: Tensor
    step: Tensor


class Objective(Protocol):
    """A loss that is a sum over rows, so that a global batch can be divided in any way.

    Attributes:
        measures: names of the means per target token that are reported besides the loss.
    """

    measures: tuple[str, ...]

    def __call__(self, model: StatelessModel, matrices: list[Tensor], rows: Rows) -> tuple[Tensor, list[Tensor]]:
        """Computes the loss of some rows.

        Args:
            model: the model, as a function of its weights.
            matrices: the weights, float32 matrices; see `MatrixLayout`.
            rows: the rows.

        Returns:
            The scaled sums of the loss and of the measures, float32 [1 + measures], and the gradients of the scaled
            loss, in the shapes of `matrices`.
        """


class Likelihood:
    """The label-smoothed cross-entropy (section 5.4) plus the model's auxiliary loss; an `Objective`.

    Args:
        label_smoothing: epsilon, in [0, 1).
        consistency: a second prediction, whose divergence from the first is added; None for none.
    """

    measures: tuple[str, ...] = ()

    def __init__(self, label_smoothing: float, consistency: Consistency | None = None) -> None:
        self._label_smoothing, self._consistency = label_smoothing, consistency

    def __call__(self, model: StatelessModel, matrices: list[Tensor], rows: Rows) -> tuple[Tensor, list[Tensor]]:
        settings = rows.scale, self._label_smoothing, rows.seed, self._consistency
        loss, gradients = model.likelihood(matrices, rows.pairs, *settings)
        return tf.expand_dims(loss * rows.scale, 0), gradients
