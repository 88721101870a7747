"""The paper's Adam (section 5.3): dense gradients, one fused operation a variable."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

Tensor = Any


class Adam(tf.Module):
    """Adam (Kingma and Ba, 2015) with epsilon added to the uncorrected root, as T2T and the paper's code had it.

    Make it inside the strategy's scope; call `apply` in a replica's context with
    gradients that are already summed over the replicas.

    Args:
        variables: what is trained, `tf.Variable`s of float32.
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        epsilon: added to the root of the second moment.
    """

    def __init__(self, variables: Sequence[tf.Variable], beta1: float, beta2: float, epsilon: float) -> None:
        super().__init__(name="adam")
        self.variables_to_train = list(variables)
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self.first_moments = [_zeros_like(variable, "first_moment") for variable in variables]
        self.second_moments = [_zeros_like(variable, "second_moment") for variable in variables]

    def apply(self, gradients: Sequence[Tensor], learning_rate: Tensor, step: Tensor) -> None:
        """One update of every variable.

        Args:
            gradients: dense, float32, one a variable.
            learning_rate: float32 scalar.
            step: of this update, counting from 1; integer scalar.
        """
        step = tf.cast(step, tf.float32)
        powers = tf.pow(self.beta1, step), tf.pow(self.beta2, step)
        columns = zip(self.variables_to_train, self.first_moments, self.second_moments, gradients, strict=True)
        for variable, first, second, gradient in columns:
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=first.handle,
                v=second.handle,
                beta1_power=powers[0],
                beta2_power=powers[1],
                lr=learning_rate,
                beta1=self.beta1,
                beta2=self.beta2,
                epsilon=self.epsilon,
                grad=gradient,
            )


def _zeros_like(variable: tf.Variable, name: str) -> tf.Variable:
    return tf.Variable(tf.zeros(variable.shape, variable.dtype), trainable=False, name=name)
