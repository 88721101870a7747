"""Bounds the memory of responses that clients have not read yet."""

import contextlib
import threading
from collections.abc import Callable

from t2t_keras.serving.request_errors import Busy
from t2t_keras.serving.served_signatures import Arrays

# Responses up to this size are not counted: a connection needs that much memory anyway.
LARGE_BYTES = 32 << 10

# Overhead of a bytes object, besides its bytes.
_STRING_BYTES = 48

# Time that a client has to read a response: a fixed part, plus the time that reading takes at this rate.
_SECONDS = 20.0
_BYTES_A_SECOND = 64 << 10


def seconds_to_send(num_bytes: int) -> float:
    """Returns how many seconds a client may take to read `num_bytes`."""
    return _SECONDS + num_bytes / _BYTES_A_SECOND


def memory_of(outputs: Arrays) -> int:
    """Returns the approximate size of arrays in memory, in bytes."""
    return sum(
        _STRING_BYTES * array.size + sum(map(len, array.reshape(-1))) if array.dtype == object else array.nbytes
        for array in outputs.values()
    )


class UnsentAnswers:
    """Counts the bytes of the large responses that both interfaces are sending.

    Args:
        limit: maximum number of bytes in total; a single response may exceed it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    def add(self, num_bytes: int) -> Callable[[], None]:
        """Adds a response to the count.

        Returns:
            Function that subtracts the response again; calling it repeatedly is harmless.

        Raises:
            Busy: the limit would be exceeded.
        """
        with self._lock:
            if self._num_bytes and self._num_bytes + num_bytes > self._limit:
                raise Busy(
                    f"clients have not read responses of {self._num_bytes} bytes yet, and {num_bytes} more bytes would "
                    f"exceed max_unsent_bytes={self._limit}; try again later"
                )
            self._num_bytes += num_bytes
        ending = contextlib.ExitStack()
        ending.callback(self._subtract, num_bytes)
        return ending.close

    def _subtract(self, num_bytes: int) -> None:
        with self._lock:
            self._num_bytes -= num_bytes
