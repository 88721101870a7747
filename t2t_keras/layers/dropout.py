"""Dropout with explicit seeds."""

from typing import Any

import keras
import numpy as np
from keras import ops

from t2t_keras import kernels
from t2t_keras.layers.layer import Layer
from t2t_keras.symbols import EOS_ID
from t2t_keras.tensor import Tensor
from t2t_keras.values import Rate, check_arguments


def fold_in(seed: Tensor | None, index: Tensor | int) -> Tensor | None:
    """Derives the seed of part `index` from a seed, int32 [2]; None for None. Nested parts get different seeds too."""
    if seed is None:
        return None
    # One step of a linear congruential generator per level; 32-bit integers wrap on every backend.
    return seed_tensor(seed) * 1664525 + (2 * index + 1) * 69069


def seed_tensor(seed: Any) -> Tensor:
    """Returns a seed, or several, as int32 [..., 2]; raises a ValueError if it is not two whole numbers."""
    if isinstance(seed, list | tuple):
        seed = np.array(seed)
    shape, dtype = tuple(getattr(seed, "shape", ())), str(getattr(seed, "dtype", ""))
    if shape[-1:] not in ((2,), (None,)) or "int" not in dtype:
        raise ValueError(f"`seed` must be two whole numbers, int32 [2], got {seed!r}")
    return ops.convert_to_tensor(seed, "int32")


def draw_seed(generator: keras.random.SeedGenerator) -> Tensor:
    """Draws the generator's next seed, int32 [2]."""
    return ops.cast(ops.bitwise_and(generator.next(), 0x7FFFFFFF), "int32")


def token_cutoff(token_ids: Tensor, rate: float, seed: Tensor) -> Tensor:
    """Cuts off random tokens: their embeddings become zero, but masks and positions do not change.

    A token that is cut off gets its negative id. Padding, the start symbol and end symbols are never cut off.

    Args:
        token_ids: int [...].
        rate: probability that a token is cut off, in [0, 1).
        seed: int32 [2].

    Returns:
        The ids, int in the shape of `token_ids`.

    Reference: token cutoff in Shen et al., "A Simple but Tough-to-Beat Data Augmentation Approach for Natural Language
    Understanding and Generation", 2020.
    """
    if not rate:
        return token_ids
    is_cut = ops.equal(kernels.dropout(ops.ones(ops.shape(token_ids), "float32"), rate, seed), 0)
    return ops.where(ops.logical_and(is_cut, ops.not_equal(token_ids, EOS_ID)), -token_ids, token_ids)


@keras.saving.register_keras_serializable(package="t2t_keras")
class Dropout(Layer):
    """Zeroes random elements in training, and scales up the others (section 5.4; Srivastava et al., 2014).

    If a `seed` is passed to the call, the mask depends only on this seed, which makes training exactly resumable.
    Otherwise the layer draws seeds from its own generator, as Keras's layer does.

    Args:
        rate: probability that an element is set to zero, in [0, 1); TensorFlow rounds it to a multiple of 1/256.

    Call arguments:
        inputs: float, any shape.
        seed: int32 [2], or None.
        training: whether to drop elements.

    Returns:
        The same shape as the inputs, in the compute dtype.

    Raises:
        ValueError: `rate` is not a number in [0, 1), or `seed` is not two whole numbers.
    """

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_arguments(Rate, rate=rate)
        self.rate = rate
        self.seed_generator = keras.random.SeedGenerator() if rate > 0 else None
        self.built = True

    def call(self, inputs: Tensor, seed: Tensor | None = None, training: bool | None = None) -> Tensor:
        if not training or self.rate == 0:
            return inputs
        if seed is None:
            seed = draw_seed(self.seed_generator)
        return kernels.dropout(inputs, self.rate, seed_tensor(seed))
