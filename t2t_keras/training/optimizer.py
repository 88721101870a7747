"""Computes `updates.adam` (section 5.3) with one fused TensorFlow operation per weight matrix."""

from collections.abc import Sequence

import tensorflow as tf

from t2t_keras.tensor import Tensor


class Adam(tf.Module):
    """Adam (Kingma and Ba, 2015).

    Epsilon is added to the root of the second moment before bias correction, as in T2T (tensor2tensor), the paper's
    code. Create the optimizer in the strategy's scope.

    Args:
        weights: float32 variables; see `MatrixLayout`.
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        epsilon: added to the root of the second moment.

    Attributes:
        first_moments: moving averages of the gradients, one variable per weight.
        second_moments: moving averages of the squared gradients, one variable per weight.
    """

    def __init__(self, weights: Sequence[tf.Variable], beta1: float, beta2: float, epsilon: float) -> None:
        super().__init__(name="adam")
        self.weights, self.beta1, self.beta2, self.epsilon = list(weights), beta1, beta2, epsilon
        self.first_moments = [_zeros_like(variable, "first_moments") for variable in weights]
        self.second_moments = [_zeros_like(variable, "second_moments") for variable in weights]

    def apply(self, gradients: Sequence[Tensor], learning_rate: Tensor, step: Tensor) -> None:
        """Updates all weights; call it in a replica context.

        Args:
            gradients: dense float32 gradients, one per weight, summed over the replicas.
            learning_rate: float32 scalar.
            step: number of this update, from 1.
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
