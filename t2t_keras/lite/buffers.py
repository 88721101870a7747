"""Reusable memory for arrays that TensorFlow reads in place."""

import sys

import numpy as np

_ALIGNMENT = 64  # bytes; TensorFlow copies arrays that are aligned to less


def _references(buffers: list[np.ndarray], index: int) -> int:
    """The number of references to one of a list's buffers, including the list's."""
    return sys.getrefcount(buffers[index])


_UNREAD = _references([np.empty(0)], 0)  # for a buffer without readers, as this interpreter counts


class Buffers:
    """Copies arrays into reused memory: a new megabyte for each step would cost as much as the step's arithmetic."""

    def __init__(self) -> None:
        self._buffers: list[np.ndarray] = []

    def copy(self, array: np.ndarray) -> np.ndarray:
        """A copy that is not overwritten while it is referenced."""
        size = array.nbytes + _ALIGNMENT
        unread = [index for index in range(len(self._buffers)) if _references(self._buffers, index) == _UNREAD]
        large = [index for index in unread if self._buffers[index].nbytes >= size]
        if large:
            buffer = self._buffers[large[0]]
        else:
            self._buffers = [buffer for buffer in self._buffers if buffer.nbytes >= size]
            buffer = np.empty(size, np.uint8)
            self._buffers.append(buffer)
        start = -buffer.ctypes.data % _ALIGNMENT
        copy = buffer[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        copy[...] = array
        return copy
