"""Arrays that are memory-mapped on access, within the system's limit of open files."""

import contextlib
import errno
import mmap
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from t2t_keras.errors import InputError

# Linux allows 65,530 maps per process by default; other libraries need some of them.
_MAX_OPEN_FILES = 16_384


class MappedArray:
    """A one-dimensional array in an .npy file. Only the header is read until the array is indexed.

    A map occupies a file descriptor as long as it exists, which cannot be avoided before Python 3.13.

    Args:
        path: the file.
        keeps_open: whether to keep the first map. Otherwise each access creates a new map, which lives as long as the
            result.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file does not hold a one-dimensional array of numbers, or is shorter than its header says.
        InputError: too many files are open.
    """

    def __init__(self, path: Path, *, keeps_open: bool = False) -> None:
        self._path, self._keeps_open = path, keeps_open
        self._array: np.ndarray | None = None
        with _explain_file_limit(), open(path, "rb") as file:
            if np.lib.format.read_magic(file) != (1, 0):
                raise ValueError("not an array of the supported format version")
            shape, _, self._dtype = np.lib.format.read_array_header_1_0(file)
            self._begin = file.tell()
            size = file.seek(0, 2)
        if len(shape) != 1 or self._dtype.hasobject:
            raise ValueError(f"not a flat array of numbers but {self._dtype} {list(shape)}")
        (self._length,) = shape
        if size < self._begin + self._length * self._dtype.itemsize:
            raise ValueError(f"{size} bytes are too few for {self._length} numbers of {self._dtype}")

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: slice | np.ndarray) -> np.ndarray:
        """Returns a view of the map for a slice, or a copy for an index array."""
        if self._array is not None:
            return self._array[index]
        if not self._length:
            return np.zeros(0, self._dtype)[index]
        with _explain_file_limit(), open(self._path, "rb") as file:
            contents = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        array = np.frombuffer(contents, self._dtype, self._length, self._begin)
        if self._keeps_open:
            self._array = array
        return array[index]


def room_for_open_files(wanted: int) -> int:
    """Returns how many of `wanted` files may stay open; raises the system's limit (`ulimit -n`) if possible.

    The result is at most half of the limit, and at most 16,384.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < 2 * wanted:
        limit = 2 * wanted if hard == resource.RLIM_INFINITY else min(2 * wanted, hard)
        with contextlib.suppress(ValueError, OSError):  # some systems have additional limits
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    available = wanted if soft == resource.RLIM_INFINITY else soft // 2
    return min(wanted, available, _MAX_OPEN_FILES)


@contextlib.contextmanager
def _explain_file_limit() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        raise InputError(
            f"too many files are open (ulimit -n is {limit}): raise the limit, "
            "or prepare the data in fewer files, with a larger --shard_pairs"
        ) from error
