"""Learning rate schedules: the paper's, a constant rate, and a final decay to zero."""

from typing import Any

import keras
from keras import ops

from t2t_keras.tensor import Tensor
from t2t_keras.values import PositiveFloat, PositiveInt, check_arguments


def learning_rate(step: Tensor, d_model: int, warmup_steps: int, scale: float = 1.0, hold_steps: int = 0) -> Tensor:
    """scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), float32 scalar (section 5.3, equation 3).

    Args:
        step: number of the update, counted from 1.
        d_model: width of the model.
        warmup_steps: updates during which the rate rises linearly.
        scale: factor on the rate; 1 in the paper, 2 in T2T (tensor2tensor).
        hold_steps: updates for which the rate then stays at its peak before it decays with the inverse square root
            of the step (Shazeer et al., 2017); 0 in the paper.
    """
    step = ops.cast(step, "float32")
    decay = ops.rsqrt(step)
    if hold_steps:
        decay = ops.minimum(warmup_steps**-0.5, decay * (1 + hold_steps / warmup_steps) ** 0.5)
    return scale * d_model**-0.5 * ops.minimum(decay, step * warmup_steps**-1.5)


def constant_rate(step: Tensor, warmup_steps: int, rate: float) -> Tensor:
    """rate * min(1, step / warmup_steps), float32 scalar; updates are counted from 1."""
    return rate * ops.minimum(1.0, ops.cast(step, "float32") / warmup_steps)


def decay_to_zero(step: Tensor, last_step: Tensor, decay_steps: int) -> Tensor:
    """min(1, (last_step + 1 - step) / decay_steps), float32 scalar: a factor that decays a learning rate to zero.

    Updates are counted from 1. The factor is 1 until `decay_steps` updates are left and falls linearly to
    1 / `decay_steps` in the last one. The paper's schedule does not have it.
    """
    remaining_steps = ops.cast(last_step + 1 - step, "float32")
    return ops.minimum(1.0, remaining_steps / decay_steps)


@keras.saving.register_keras_serializable(package="t2t_keras")
class PaperSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """`learning_rate` as a schedule for Keras optimizers; also called the Noam schedule.

    Args:
        d_model: width of the model, at least 1.
        warmup_steps: updates during which the rate rises linearly, at least 1.
        scale: factor on the rate, above 0; 1 in the paper, 2 in T2T.

    Call arguments:
        step: number of the update, counted from 0 as Keras does.

    Returns:
        float32 scalar.

    Example:
        >>> schedule = PaperSchedule(d_model=512, warmup_steps=4000)
        >>> round(float(schedule(3999)), 6)  # the highest
        0.000699
    """

    def __init__(self, d_model: int, warmup_steps: int = 4000, scale: float = 1.0) -> None:
        check_arguments(PositiveInt, d_model=d_model, warmup_steps=warmup_steps)
        check_arguments(PositiveFloat, scale=scale)
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        self.scale = scale

    def __call__(self, step: Tensor) -> Tensor:
        return learning_rate(ops.cast(step, "float32") + 1.0, self.d_model, self.warmup_steps, self.scale)

    def get_config(self) -> dict[str, Any]:
        return {"d_model": self.d_model, "warmup_steps": self.warmup_steps, "scale": self.scale}
