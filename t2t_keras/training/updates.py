"""What the training steps of all backends share; this module does not import TensorFlow."""

import types
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from t2t_keras import schedules
from t2t_keras.config import TrainConfig
from t2t_keras.tensor import Tensor


class StepMetrics(NamedTuple):
    """Metrics of the steps of one call, float32 [steps] each.

    Attributes:
        loss: value of the objective per target token: label-smoothed plus auxiliary loss, or expected cost.
        tokens: number of target tokens in the global batch.
        learning_rate: learning rate of the update.
        gradient_norm: global norm of the gradients summed over replicas, before clipping.
        measures: further means per target token that the objective reports, by name.
    """

    loss: np.ndarray
    tokens: np.ndarray
    learning_rate: np.ndarray
    gradient_norm: np.ndarray
    measures: Mapping[str, np.ndarray] = types.MappingProxyType({})


class Head(NamedTuple):
    """The weights of an output head, or their gradients.

    Attributes:
        table: float32 [vocab, d_model], the pre-softmax projection.
        bias: float32 [vocab], added to the logits, or None.
    """

    table: Tensor
    bias: Tensor | None = None


def update_rate(config: TrainConfig, d_model: int, step: Tensor, last_step: Tensor) -> Tensor:
    """Returns the learning rate of an update, a float32 scalar.

    Args:
        config: training settings.
        d_model: width of the model.
        step: number of the update, from 1.
        last_step: number of the last update, at which a decaying rate reaches zero.
    """
    scale, warmup_steps = config.learning_rate_scale, config.warmup_steps
    if config.schedule == "constant":
        rate = schedules.constant_rate(step, warmup_steps, scale)
    else:
        rate = schedules.learning_rate(step, d_model, warmup_steps, scale, config.hold_steps)
    return rate * schedules.decay_to_zero(step, last_step, config.decay_steps) if config.decay_steps else rate
