"""A model's weights as plain variables, which is all that a server's loader can read."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import keras
import tensorflow as tf

from t2t_keras.models.contract import SequenceModel
from t2t_keras.models.weights import weight_names

Storage = Literal["float32", "bfloat16"]


class Weights:
    """The weights of a model, under the names that a checkpoint gives them.

    No `tf.Module`, which would take the model's own variables along: a module that is saved is given `variables`.

    A SavedModel of the Keras model itself loads in Python alone: TensorFlow's own loader does not find its
    variables. So the model is traced with these in place of its own, which stay outside.

    Args:
        model: built.
        storage: the type that the variables have in memory and on disk; they are float32 when they are used.

    Attributes:
        variables: name -> variable.
    """

    def __init__(self, model: SequenceModel, storage: Storage = "float32") -> None:
        self._originals = list(zip(weight_names(model), model.trainable_variables, strict=True))
        self.variables = {
            name: tf.Variable(tf.cast(weight.numpy(), storage), trainable=False, name=name)
            for name, weight in self._originals
        }

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Within it, a graph that calls the model reads these variables."""
        mapping = [(weight, tf.cast(self.variables[name], tf.float32)) for name, weight in self._originals]
        with keras.StatelessScope(state_mapping=mapping):
            yield
