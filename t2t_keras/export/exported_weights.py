"""A model's weights as plain variables, the only kind that a server's loader can read."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Literal

import keras
import tensorflow as tf

from t2t_keras.export.ready_weights import KeptWeights
from t2t_keras.models.contract import SequenceModel
from t2t_keras.models.weights import named_weights

Storage = Literal["float32", "bfloat16"]


class Weights:
    """The weights of a built model, under the names that a checkpoint gives them.

    A SavedModel of the Keras model itself can be loaded only in Python, because TensorFlow's own loader does not find
    its variables. So the model is traced with these variables in place of its own. This class is not a `tf.Module`,
    which would save the model's own variables too; assign `variables` to the module that is saved.

    Attributes:
        variables: variables by name, of dtype `storage` in memory and on disk; they are cast to float32 for use.
        ready: what is made of them once they are loaded.
    """

    def __init__(self, model: SequenceModel, storage: Storage = "float32") -> None:
        self._originals = list(named_weights(model).items())
        self.variables = {
            name: tf.Variable(tf.cast(weight.numpy(), storage), trainable=False, name=name)
            for name, weight in self._originals
        }
        self.ready = KeptWeights(self._read)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Within this context, a graph that calls the model reads these variables, and keeps what is made of them.

        A function that is traced within it may have it again: it then reads the variables itself.
        """
        with self._read(), nullcontext() if KeptWeights.innermost() is self.ready else self.ready:
            yield

    @contextmanager
    def _read(self) -> Iterator[None]:
        mapping = [(weight, tf.cast(self.variables[name], tf.float32)) for name, weight in self._originals]
        with keras.StatelessScope(state_mapping=mapping):
            yield
