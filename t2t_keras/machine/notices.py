"""Keeps what TensorFlow's libraries write past Python and past the log level from standard error."""

import contextlib
import os
import sys
import tempfile
import threading
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
    # At each conversion to TensorFlow Lite by TensorFlow 2.20:
    b"Number of eligible GPUs",
    b"Starting new session",
    b"Ignored output_format",
    b"Ignored drop_control_dependency",
)

_LOCK = threading.RLock()  # of two threads, each would take the other's file for standard error


@contextlib.contextmanager
def without_notices() -> Iterator[None]:
    """Keeps notices of TensorFlow and its libraries, which they write past Python, from standard error."""
    with _LOCK, tempfile.TemporaryFile() as caught:
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
