"""Imports TensorFlow without its libraries' notices, for programs that need Keras on it, whatever KERAS_BACKEND says.

It is to be imported before anything else that imports TensorFlow or Keras.
"""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

from t2t_keras.machine.notices import without_notices  # noqa: E402

from . import quiet_keras  # noqa: E402, F401

__all__ = ["without_notices"]
