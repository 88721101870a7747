"""Adam in NumPy, the reference of the tests."""

import numpy as np


class NumpyAdam:
    """Algorithm 1 of Kingma and Ba in the order of the last lines of their section 2, in float64.

    Args:
        weights: the initial weights.
        beta1: the decay of the first moment.
        beta2: the decay of the second moment.
        epsilon: added to the root of the second moment before its correction.
    """

    def __init__(
        self, weights: list[np.ndarray], beta1: float = 0.9, beta2: float = 0.98, epsilon: float = 1e-9
    ) -> None:
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self.weights = [array.astype(np.float64) for array in weights]
        self.first_moments = [np.zeros_like(array) for array in self.weights]
        self.second_moments = [np.zeros_like(array) for array in self.weights]

    def apply(self, gradients: list[np.ndarray], rate: float, step: int) -> None:
        corrected_rate = rate * np.sqrt(1 - self.beta2**step) / (1 - self.beta1**step)
        for i, gradient in enumerate(gradients):
            self.first_moments[i] = self.beta1 * self.first_moments[i] + (1 - self.beta1) * gradient
            self.second_moments[i] = self.beta2 * self.second_moments[i] + (1 - self.beta2) * gradient**2
            change = self.first_moments[i] / (np.sqrt(self.second_moments[i]) + self.epsilon)
            self.weights[i] = self.weights[i] - corrected_rate * change
