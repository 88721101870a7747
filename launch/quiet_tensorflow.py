"""Imports TensorFlow without its libraries' notices; to be imported before anything else that imports TensorFlow."""

from t2t_keras.machine.notices import import_tensorflow, without_notices

__all__ = ["without_notices"]

import_tensorflow()
