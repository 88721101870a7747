"""Bounds the memory of answers that their clients have not read yet."""

import contextlib
import threading
from collections.abc import Callable

from t2t_keras.serving.request_errors import Busy
from t2t_keras.serving.served_signatures import Arrays

# Answers of fewer bytes are not counted: a connection holds no more than that anyway.
LARGE_BYTES = 32 << 10

# Of a string's object, beside its bytes.
_STRING_BYTES = 48

# The time that a client has for an answer: some seconds, and as long as it takes at so many bytes a second.
_SECONDS = 20.0
_BYTES_A_SECOND = 64 << 10


def seconds_to_send(num_bytes: int) -> float:
    """How long a client may take to read so many bytes."""
    return _SECONDS + num_bytes / _BYTES_A_SECOND


def memory_of(outputs: Arrays) -> int:
    """The bytes that arrays take in memory, nearly."""
    return sum(
        _STRING_BYTES * array.size + sum(map(len, array.reshape(-1))) if array.dtype == object else array.nbytes
        for array in outputs.values()
    )


class UnsentAnswers:
    """Counts the bytes of the large answers that are being sent by both interfaces together.

    Args:
        limit: most bytes in all; a single answer may exceed it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    def add(self, num_bytes: int) -> Callable[[], None]:
        """Counts an answer and returns what ends its counting, which may be called twice.

        Raises:
            Busy: there is no room for it.
        """
        with self._lock:
            if self._num_bytes and self._num_bytes + num_bytes > self._limit:
                raise Busy(
                    f"{self._num_bytes} bytes of answers wait for their clients to read them, and {num_bytes} more "
                    f"would be above max_unsent_bytes={self._limit}; try again later"
                )
            self._num_bytes += num_bytes
        ending = contextlib.ExitStack()
        ending.callback(self._subtract, num_bytes)
        return ending.close

    def _subtract(self, num_bytes: int) -> None:
        with self._lock:
            self._num_bytes -= num_bytes
