"""Filters the notices of TensorFlow and its libraries out of standard error."""

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

# TensorFlow writes notices about a missing GPU, a tokenizer and integers in a graph at any log level. It also warns
# about missing custom gradients in an export, which is never trained, and about searches with several settings.
_NOTICES = (
    b"All log messages before absl::InitializeLog()",
    b"oneDNN custom operations are on",
    b"Could not find cuda drivers",
    b"failed call to cuInit",
    b"precompiled_charsmap is empty",
    b"oneDNN supports DT_",
    b"with ops with unsaved custom gradients",
    b"triggered tf.function retracing",
    # In each conversion to TensorFlow Lite with TensorFlow 2.20:
    b"Number of eligible GPUs",
    b"Starting new session",
    b"Ignored output_format",
    b"Ignored drop_control_dependency",
    b"MLIR V1 optimization pass is not enabled",
)

_LOCK = threading.RLock()  # two threads that redirect at once would each restore the other's file as standard error


@contextlib.contextmanager
def without_notices() -> Iterator[None]:
    """A context that drops known notices, which libraries write directly to file descriptor 2, bypassing Python."""
    with _LOCK, contextlib.ExitStack() as stack:
        try:
            buffer = stack.enter_context(tempfile.TemporaryFile())
        except OSError:  # without a temporary file the notices are visible
            yield
            return
        sys.stderr.flush()
        stderr = os.dup(2)
        os.dup2(buffer.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            buffer.seek(0)
            for line in buffer:
                if not any(notice in line for notice in _NOTICES):
                    os.write(2, line)


def import_tensorflow() -> None:
    """Imports TensorFlow without the notices of its libraries."""
    with without_notices():
        import tensorflow as tf

        list_devices(tf)


def list_devices(tensorflow: Any) -> None:
    """Makes TensorFlow list the devices, which writes notices the first time; skipped if TPU_NAME is set."""
    if not os.environ.get("TPU_NAME"):
        tensorflow.config.list_physical_devices()
