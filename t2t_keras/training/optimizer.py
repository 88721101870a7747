"""The paper's Adam (section 5.3): dense gradients, one fused operation a variable."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

Tensor = Any


class AdamHandles(NamedTuple):
    """The handles of one replica's variables that an update changes, a list of them each.

    Attributes:
        weights: of what is trained.
        first_moments: of the gradients' moving averages.
        second_moments: of the squared gradients' moving averages.
    """

    weights: list[Tensor]
    first_moments: list[Tensor]
    second_moments: list[Tensor]


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

    def handles(self) -> AdamHandles:
        """The handles of the variables, in a replica's context those of the replica."""
        columns = (self.variables_to_train, self.first_moments, self.second_moments)
        return AdamHandles(*([variable.handle for variable in column] for column in columns))

    def apply(self, gradients: Sequence[Tensor], learning_rate: Tensor, step: Tensor, handles: AdamHandles) -> None:
        """One update of every variable.

        Args:
            gradients: dense, float32, one a variable.
            learning_rate: float32 scalar.
            step: of this update, counting from 1; integer scalar.
            handles: of the variables, as `handles` gives them.
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
        for weight, first, second, gradient in zip(*handles, gradients, strict=True):
            tf.raw_ops.ResourceApplyAdam(var=weight, m=first, v=second, grad=gradient, **settings)


def _zeros_like(variable: tf.Variable, name: str) -> tf.Variable:
    return tf.Variable(tf.zeros(variable.shape, variable.dtype), trainable=False, name=name)
