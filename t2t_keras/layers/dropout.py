"""Dropout with explicit seeds."""

from typing import Any

import keras
from keras import ops

from t2t_keras import kernels
from t2t_keras.layers.layer import Layer
from t2t_keras.tensor import Tensor


def fold_in(seed: Tensor | None, index: Tensor | int) -> Tensor | None:
    """Derives the seed of part `index` from a seed, int32 [2]; None for None. Seeds of nested parts do not collide."""
    if seed is None:
        return None
    # One step of a linear congruential generator per level; 32-bit integers wrap on every backend.
    return ops.convert_to_tensor(seed, "int32") * 1664525 + (2 * index + 1) * 69069


def drawn_seed(generator: keras.random.SeedGenerator) -> Tensor:
    """Draws the generator's next seed, int32 [2]."""
    return ops.cast(ops.bitwise_and(generator.next(), 0x7FFFFFFF), "int32")


@keras.saving.register_keras_serializable(package="t2t_keras")
class Dropout(Layer):
    """Zeroes random elements in training, and scales up the others (section 5.4; Srivastava et al., 2014).

    If a `seed` is passed to the call, the mask depends only on this seed, which makes training exactly resumable.
    Otherwise the layer draws seeds from its own generator, as Keras's layer does.

    Args:
        rate: probability that an element is set to zero, in [0, 1).

    Call arguments:
        inputs: float, any shape.
        seed: int32 [2], or None.
        training: whether to drop elements.

    Returns:
        The same shape as the inputs, in the compute dtype.

    Raises:
        ValueError: `rate` is outside [0, 1).
    """

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if rate is None or not 0 <= rate < 1:
            raise ValueError(f"`rate` must be in [0, 1), got {rate}")
        self.rate = rate
        self.seed_generator = keras.random.SeedGenerator() if rate > 0 else None
        self.built = True

    def call(self, inputs: Tensor, seed: Tensor | None = None, training: bool | None = None) -> Tensor:
        if not training or self.rate == 0:
            return inputs
        if seed is None:
            seed = drawn_seed(self.seed_generator)
        return kernels.dropout(inputs, self.rate, ops.convert_to_tensor(seed, "int32"))
