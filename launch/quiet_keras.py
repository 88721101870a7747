"""Imports TensorFlow without its libraries' notices; Keras stays on the backend that KERAS_BACKEND names."""

import importlib.util
import os
import sys

from t2t_keras.machine.notices import import_tensorflow

# Keras would end the program with a traceback.
if os.environ.get("KERAS_BACKEND") == "jax" and not importlib.util.find_spec("jax"):
    sys.exit("error: KERAS_BACKEND=jax: the package jax is missing: pip install '.[jax]'")

import_tensorflow()
