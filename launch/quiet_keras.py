"""Imports TensorFlow without its libraries' notices; Keras stays on the backend that KERAS_BACKEND names."""

import importlib.util
import os
import sys

from t2t_keras.machine.notices import import_tensorflow

from . import helping

# Keras would end the program with a traceback.
if os.environ.get("KERAS_BACKEND") == "jax" and not importlib.util.find_spec("jax"):
    said = "error: KERAS_BACKEND=jax: the package jax is missing: pip install '.[jax]'"
    sys.exit(helping.as_typed(said, sys.argv[0]))

import_tensorflow()
