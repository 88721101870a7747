"""Memory for results that TensorFlow reads in place."""

import sys

import numpy as np

_ALIGNMENT = 64  # bytes, without which TensorFlow copies what Python gives it
_REFERENCES = 3  # to a buffer that nobody reads: the list's, the loop's, and getrefcount's own


class Buffers:
    """Copies of arrays in memory that is used again once TensorFlow is done with it.

    A fresh megabyte for each step would cost as much as the step's arithmetic, for the system to find and clear it.
    """

    def __init__(self) -> None:
        self._buffers: list[np.ndarray] = []

    def copy(self, array: np.ndarray) -> np.ndarray:
        """A copy that is not written to as long as somebody holds it."""
        for buffer in self._buffers:
            if buffer.nbytes >= array.nbytes + _ALIGNMENT and sys.getrefcount(buffer) == _REFERENCES:
                break
        else:
            self._buffers = [buffer for buffer in self._buffers if buffer.nbytes >= array.nbytes + _ALIGNMENT]
            buffer = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
            self._buffers.append(buffer)
        start = -buffer.ctypes.data % _ALIGNMENT
        copy = buffer[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        copy[...] = array
        return copy
