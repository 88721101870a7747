"""The paper's learning rate."""

from typing import Any

import keras
from keras import ops

Tensor = Any


def learning_rate(step: Tensor, d_model: int, warmup_steps: int, scale: float = 1.0) -> Tensor:
    """scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5) (section 5.3, equation 3).

    Args:
        step: of the update, counting from 1; int or float scalar.
        d_model: width of the model.
        warmup_steps: steps in which the rate rises linearly.
        scale: 1 in the paper, 2 in T2T.

    Returns:
        float32 scalar.
    """
    step = ops.cast(step, "float32")
    return scale * d_model**-0.5 * ops.minimum(ops.rsqrt(step), step * warmup_steps**-1.5)


@keras.saving.register_keras_serializable(package="t2t_keras")
class PaperSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """`learning_rate` for a Keras optimizer.

    Args:
        d_model: width of the model.
        warmup_steps: steps in which the rate rises linearly.
        scale: factor on the rate.
    """

    def __init__(self, d_model: int, warmup_steps: int = 4000, scale: float = 1.0) -> None:
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        self.scale = scale

    def __call__(self, step: Tensor) -> Tensor:
        # Keras counts updates from 0.
        return learning_rate(ops.cast(step, "float32") + 1.0, self.d_model, self.warmup_steps, self.scale)

    def get_config(self) -> dict[str, Any]:
        return {"d_model": self.d_model, "warmup_steps": self.warmup_steps, "scale": self.scale}
