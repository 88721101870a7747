"""The parts of an update (learning rate, clipping, Adam, moving average) as functions of arrays on any backend.

This module does not import TensorFlow.
"""

import types
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from keras import ops

from t2t_keras import schedules
from t2t_keras.config import TrainConfig
from t2t_keras.tensor import Tensor


class StepMetrics(NamedTuple):
    """Metrics of the steps of one call, float32 [steps] each.

    Attributes:
        loss: value of the objective per target token, such as the label-smoothed loss plus the auxiliary loss.
        tokens: number of target tokens in the global batch.
        learning_rate: learning rate of the update.
        gradient_norm: global norm of the gradients summed over replicas, before clipping.
        measures: the objective's other means per target token, by name.
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
        last_step: number of the last update, after which a decaying rate reaches zero.
    """
    scale, warmup_steps = config.learning_rate_scale, config.warmup_steps
    if config.schedule == "constant":
        rate = schedules.constant_rate(step, warmup_steps, scale)
    else:
        rate = schedules.learning_rate(step, d_model, warmup_steps, scale, config.hold_steps)
    return rate * schedules.decay_to_zero(step, last_step, config.decay_steps) if config.decay_steps else rate


def clipped(gradients: Sequence[Tensor], clip_norm: float) -> tuple[list[Tensor], Tensor]:
    """Scales gradients so that their global norm is at most `clip_norm`.

    Args:
        gradients: float32 arrays of any shapes.
        clip_norm: largest global norm; 0 means no clipping.

    Returns:
        The gradients, and their global norm before clipping, a float32 scalar. Gradients that are not finite stay so.
    """
    norm = ops.sqrt(sum(ops.sum(ops.square(gradient)) for gradient in gradients))
    if not clip_norm:
        return list(gradients), norm
    factor = clip_norm * ops.minimum(1.0 / norm, 1.0 / clip_norm)
    return [gradient * factor for gradient in gradients], norm


def adam(
    weight: Tensor, moments: tuple[Tensor, Tensor], gradient: Tensor, rate: Tensor, step: Tensor, config: TrainConfig
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Updates a weight with Adam (section 5.3; Kingma and Ba, 2015).

    Epsilon is added to the root of the second moment before bias correction, as in T2T.

    Args:
        weight: float32, any shape.
        moments: moving averages of the gradient and of its square, float32 in the weight's shape.
        gradient: dense float32 gradient, in the weight's shape.
        rate: learning rate, float32 scalar.
        step: number of this update, from 1.
        config: training settings, with beta1, beta2 and epsilon.

    Returns:
        The updated weight and moments.
    """
    beta1, beta2, count = config.adam_beta1, config.adam_beta2, ops.cast(step, "float32")
    first = moments[0] + (1.0 - beta1) * (gradient - moments[0])
    second = moments[1] + (1.0 - beta2) * (ops.square(gradient) - moments[1])
    rate = rate * ops.sqrt(1.0 - beta2**count) / (1.0 - beta1**count)
    return weight - rate * first / (ops.sqrt(second) + config.adam_epsilon), (first, second)


def moved_average(average: Tensor, weight: Tensor, decay: float) -> Tensor:
    """Returns the exponential moving average of a weight after an update."""
    return average + (1.0 - decay) * (weight - average)
