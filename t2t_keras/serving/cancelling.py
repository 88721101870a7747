"""Stops TensorFlow function calls that run in other threads.

TensorFlow supports this only in `tensorflow.python.eager.cancellation`, the only private module that the server uses.
It stores the active cancellation manager in one variable for all threads, so two streams would stop each other's calls.
This module stores one manager per thread instead.
"""

import threading

from tensorflow.python.eager import cancellation

_thread_state = threading.local()


class Cancellation:
    """A context manager; TensorFlow function calls within its block can be stopped from other threads.

    A stopped call raises `tf.errors.CancelledError` within some milliseconds. Calls that start in the block after
    `cancel` raise it too.
    """

    def __init__(self) -> None:
        self._manager = cancellation.CancellationManager()

    def cancel(self) -> None:
        """Stops the calls in the block. May be called from any thread; does nothing once the block has ended."""
        self._manager.start_cancel()

    def __enter__(self) -> "Cancellation":
        _thread_state.manager = self._manager
        return self

    def __exit__(self, *error: object) -> None:
        _thread_state.manager = None


def _manager_of_this_thread() -> cancellation.CancellationManager | None:
    return getattr(_thread_state, "manager", None)


# TensorFlow calls this function before each function call to get the active manager.
cancellation.context = _manager_of_this_thread
