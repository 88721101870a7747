"""The paper's Adam (section 5.3): dense gradients, one fused operation a matrix of weights."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

Tensor = Any


class Adam(tf.Module):
    """Adam (Kingma and Ba, 2015) with epsilon added to the uncorrected root, as T2T and the paper's code had it.

    Make it inside the strategy's scope; call `apply` in a replica's context with
    gradients that are already summed over the replicas.

    Args:
        weights: what is trained, variables of float32; see `Layout`.
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        epsilon: added to the root of the second moment.

    Attributes:
        first_moments: moving averages of the gradients, a variable for each of the weights.
        second_moments: those of the squared gradients, likewise.
    """

    def __init__(self, weights: Sequence[tf.Variable], beta1: float, beta2: float, epsilon: float) -> None:
        super().__init__(name="adam")
        self.weights, self.beta1, self.beta2, self.epsilon = list(weights), beta1, beta2, epsilon
        self.first_moments = [_zeros_like(variable, "first_moments") for variable in weights]
        self.second_moments = [_zeros_like(variable, "second_moments") for variable in weights]

    def apply(self, gradients: Sequence[Tensor], learning_rate: Tensor, step: Tensor) -> None:
        """One update of all weights.

        Args:
            gradients: dense, float32, one for each of the weights.
            learning_rate: float32 scalar.
            step: of this update, counting from 1; integer scalar.
        """
        step = tf.cast(step, tf.float32)
        settings = {
            "beta1_power": tf.pow(self.beta1, step),
            "beta2_power": tf.pow(self.beta2, step),
            "lr": learning_rate,
            "beta1": tf.constant(self.beta1, tf.float32),
            "beta2": tf.constant(self.beta2, tf.float32),
            "epsilon": tf.constant(self.epsilon, tf.float32),
        }
        variables = zip(self.weights, self.first_moments, self.second_moments, strict=True)
        for (weight, first, second), gradient in zip(variables, gradients, strict=True):
            tf.raw_ops.ResourceApplyAdam(var=weight.handle, m=first.handle, v=second.handle, grad=gradient, **settings)


def _zeros_like(variable: tf.Variable, name: str) -> tf.Variable:
    return tf.Variable(tf.zeros(variable.shape), trainable=False, name=name)
