"""Stops calls of TensorFlow functions that run in other threads.

TensorFlow can do this, but has no public name for it: `tensorflow.python.eager.cancellation` is the only private module
that the server uses. What it offers keeps the call that is to be stopped in one variable for all threads, so that two
streams would stop each other's calls. Here each thread has its own.
"""

import threading

from tensorflow.python.eager import cancellation

_of_thread = threading.local()


class Cancellation:
    """Stops the TensorFlow functions that one thread calls within a `with` block of this object.

    A call that is stopped raises `tf.errors.CancelledError` within some milliseconds, and so does one that begins in
    the block after `cancel`.
    """

    def __init__(self) -> None:
        self._manager = cancellation.CancellationManager()

    def cancel(self) -> None:
        """Stops what runs in the block, from any thread; without effect once it has ended."""
        self._manager.start_cancel()

    def __enter__(self) -> "Cancellation":
        _of_thread.manager = self._manager
        return self

    def __exit__(self, *error: object) -> None:
        _of_thread.manager = None


def _manager_of_this_thread() -> cancellation.CancellationManager | None:
    return getattr(_of_thread, "manager", None)


# TensorFlow asks this before each call of a function.
cancellation.context = _manager_of_this_thread
