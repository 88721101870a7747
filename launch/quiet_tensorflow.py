"""Imports TensorFlow without its libraries' notices; to be imported before anything else that imports TensorFlow."""

import os

from t2t_keras.machine.notices import without_notices


def start_lite() -> None:
    """Makes TensorFlow Lite write its first-use notices now, while they are hidden."""
    from t2t_keras.lite.interpreter import Interpreter, converted

    add = tf.function(lambda x: {"sum": x + x}, input_signature=[tf.TensorSpec([1], tf.float32, "x")])
    with without_notices():
        Interpreter(converted(add, int8=False), ["sum"], threads=1).resize({"x": [1]})


with without_notices():
    import tensorflow as tf

    if not os.environ.get("TPU_NAME"):  # a TPU must be connected before devices are listed
        tf.config.list_physical_devices()
