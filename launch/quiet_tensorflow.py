"""Imports TensorFlow without the notices that its libraries write past Python and past the log level.

A program that needs TensorFlow imports this module before anything that imports TensorFlow.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

# What TensorFlow says of a machine without a GPU, of a tokenizer and of integers in a graph, whatever the log level.
_NOTICES = (
    b"All log messages before absl::InitializeLog()",
    b"oneDNN custom operations are on",
    b"Could not find cuda drivers",
    b"failed call to cuInit",
    b"precompiled_charsmap is empty",
    b"oneDNN supports DT_INT",
    b"Created TensorFlow Lite XNNPACK delegate",
)


@contextlib.contextmanager
def without_notices() -> Iterator[None]:
    """Keeps notices of TensorFlow and its libraries, which they write past Python, from standard error."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as caught:
        os.dup2(caught.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            caught.seek(0)
            for line in caught:
                if not any(notice in line for notice in _NOTICES):
                    os.write(2, line)


def start_lite() -> None:
    """Has TensorFlow Lite say now, once, what it says when it is first used."""
    from t2t_keras.decoding.lite.interpreter import Interpreter, converted

    add = tf.function(lambda x: {"sum": x + x}, input_signature=[tf.TensorSpec([1], tf.float32, "x")])
    with without_notices():
        Interpreter(converted(add, int8=False), ["sum"], threads=1).resize({"x": [1]})


with without_notices():
    import tensorflow as tf

    if not os.environ.get("TPU_NAME"):  # a TPU has to be connected to before devices are listed
        tf.config.list_physical_devices()
