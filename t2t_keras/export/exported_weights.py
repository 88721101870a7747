"""A model's weights as plain TensorFlow variables, the only kind that a server's loader can read."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Literal

import keras
import tensorflow as tf

from t2t_keras.export.derived_variables import DerivedVariables
from t2t_keras.models.contract import SequenceModel
from t2t_keras.models.weights import named_weights

Storage = Literal["float32", "bfloat16"]


class Weights:
    """The weights of a built model, under the names that they have in a checkpoint.

    A SavedModel of the Keras model itself could be loaded only in Python, because TensorFlow's C++ loader does not find
    its variables. The model is therefore traced with these variables instead of the model's. This class is not a
    `tf.Module`, which would save the model's own variables too; assign `variables` to the module that is saved.

    Attributes:
        variables: variables by name, of dtype `storage` in memory and on disk; they are cast to float32 for use.
        derived: tensors that are computed from the variables once these are loaded.
    """

    def __init__(self, model: SequenceModel, storage: Storage = "float32") -> None:
        self._originals = list(named_weights(model).items())
        self.variables = {
            name: tf.Variable(tf.cast(weight.numpy(), storage), trainable=False, name=name)
            for name, weight in self._originals
        }
        self.derived = DerivedVariables(self._read)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Returns a context in which graphs that call the model read these variables, and share tensors in `derived`.

        A function that is traced in this context may enter it again, so that it reads the variables itself.
        """
        with self._read(), nullcontext() if DerivedVariables.innermost() is self.derived else self.derived:
            yield

    @contextmanager
    def _read(self) -> Iterator[None]:
        mapping = [(weight, tf.cast(self.variables[name], tf.float32)) for name, weight in self._originals]
        with keras.StatelessScope(state_mapping=mapping):
            yield
