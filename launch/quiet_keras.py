"""Imports TensorFlow without its libraries' notices; Keras stays on the backend that KERAS_BACKEND names."""

from t2t_keras.machine.notices import import_tensorflow

import_tensorflow()
