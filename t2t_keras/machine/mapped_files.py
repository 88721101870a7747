"""Arrays mapped from files when they are read, as many at a time as the system allows."""

import contextlib
import errno
import mmap
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from t2t_keras.errors import InputError

# Linux allows a process 65,530 maps by default; other libraries need some of them.
_MOST_KEPT = 16_384


class MappedArray:
    """A flat array in an .npy file, of which only the header is read until it is indexed.

    With `keeps_open` the first map is kept; otherwise each indexing makes a new map, which lasts as long as its result.
    A map takes a file descriptor while it exists (before Python 3.13 there is no other way).

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it holds no flat array, or is shorter than its header says.
        InputError: too many files are open.
    """

    def __init__(self, path: Path, *, keeps_open: bool = False) -> None:
        self._path, self._keeps_open = path, keeps_open
        self._kept: np.ndarray | None = None
        with _telling_too_many(), open(path, "rb") as file:
            if np.lib.format.read_magic(file) != (1, 0):
                raise ValueError("not an array of the version that is written here")
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
        """A copy for an index array, a view of the map for a slice."""
        if self._kept is not None:
            return self._kept[index]
        if not self._length:
            return np.zeros(0, self._dtype)[index]
        with _telling_too_many(), open(self._path, "rb") as file:
            contents = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        array = np.frombuffer(contents, self._dtype, self._length, self._begin)
        if self._keeps_open:
            self._kept = array
        return array[index]


def room_for_open_files(wanted: int) -> int:
    """How many of `wanted` files may stay open: at most half the limit (`ulimit -n`), which is raised if possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < 2 * wanted:
        raised = 2 * wanted if hard == resource.RLIM_INFINITY else min(2 * wanted, hard)
        with contextlib.suppress(ValueError, OSError):  # some systems have further limits
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if soft == resource.RLIM_INFINITY else soft // 2
    return min(wanted, allowed, _MOST_KEPT)


@contextlib.contextmanager
def _telling_too_many() -> Iterator[None]:
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
