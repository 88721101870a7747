"""Imports TensorFlow without its libraries' notices; to be imported before anything else that imports TensorFlow."""

import os

from t2t_keras.machine.notices import without_notices

with without_notices():
    import tensorflow as tf

    if not os.environ.get("TPU_NAME"):  # a TPU must be connected before devices are listed
        tf.config.list_physical_devices()
