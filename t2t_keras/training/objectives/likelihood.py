"""Maximum likelihood of the references."""

from typing import Any

import tensorflow as tf

from t2t_keras.training.objectives.objective import Rows
from t2t_keras.training.objectives.weighted_model import WeightedModel

Tensor = Any


class Likelihood:
    """The label-smoothed cross-entropy and the model's auxiliary loss, with dropout; see `Objective`."""

    measures: tuple[str, ...] = ()

    def __init__(self, label_smoothing: float) -> None:
        self._label_smoothing = label_smoothing

    def __call__(self, model: WeightedModel, matrices: list[Tensor], rows: Rows) -> tuple[Tensor, list[Tensor]]:
        loss = model.likelihood(matrices, rows.pairs, rows.scale, self._label_smoothing, rows.seed)
        return tf.expand_dims(loss.loss_sum * rows.scale, 0), loss.gradients
