"""Filters notices of TensorFlow's libraries out of standard error."""

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

# Notices about a missing GPU, a tokenizer and integers in a graph, which TensorFlow writes at any log level, and about
# gradients that an export has not, since nobody trains it.
_NOTICES = (
    b"All log messages before absl::InitializeLog()",
    b"oneDNN custom operations are on",
    b"Could not find cuda drivers",
    b"failed call to cuInit",
    b"precompiled_charsmap is empty",
    b"oneDNN supports DT_",
    b"with ops with unsaved custom gradients",
    # At each conversion to TensorFlow Lite by TensorFlow 2.20:
    b"Number of eligible GPUs",
    b"Starting new session",
    b"Ignored output_format",
    b"Ignored drop_control_dependency",
    b"MLIR V1 optimization pass is not enabled",
)

_LOCK = threading.RLock()  # otherwise each of two threads would take the other's file for standard error


@contextlib.contextmanager
def without_notices() -> Iterator[None]:
    """Drops known notices that libraries write to standard error directly, past Python and its log level."""
    with _LOCK, contextlib.ExitStack() as stack:
        try:
            caught = stack.enter_context(tempfile.TemporaryFile())
        except OSError:  # they are seen then
            yield
            return
        sys.stderr.flush()
        stderr = os.dup(2)
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


def import_tensorflow() -> None:
    """Imports TensorFlow without its libraries' notices."""
    with without_notices():
        import tensorflow as tf

        list_devices(tf)


def list_devices(tensorflow: Any) -> None:
    """Has TensorFlow list the devices for the first time, when it writes notices; not where a TPU must be connected."""
    if not os.environ.get("TPU_NAME"):
        tensorflow.config.list_physical_devices()
