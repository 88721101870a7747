"""Reads files of `torch.save` without torch, and without running code that a file may contain.

A pickle can call any function. This reader only allows the few functions that tensors and plain values need, and raises
an error for all others.
"""

import collections
import io
import math
import os
import pickle
import types
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from t2t_keras.errors import InputError

_DTYPES: Mapping[str, Any] = {
    "DoubleStorage": np.float64,
    "FloatStorage": np.float32,
    "HalfStorage": np.float16,
    "BFloat16Storage": ml_dtypes.bfloat16,
    "LongStorage": np.int64,
    "IntStorage": np.int32,
    "ShortStorage": np.int16,
    "CharStorage": np.int8,
    "ByteStorage": np.uint8,
    "BoolStorage": np.bool_,
}
# Packages whose objects, other than tensors, a checkpoint may hold; they are ignored.
_IGNORED_PACKAGES = ("fairseq", "numpy", "omegaconf", "torch")
# The magic number of files before torch 1.6, and the number of bytes at the start of a file that contain it.
_OLD_MAGIC = 0x1950A86A20F9469CFC6C.to_bytes(10, "little")
_OLD_START = 32


# Maximum number of elements of an expanded tensor, which has more elements than its storage.
_MAX_EXPANDED = 1 << 24

# Exceptions that reading a damaged file can raise.
_FORMAT_ERRORS = (pickle.UnpicklingError, zipfile.BadZipFile, zlib.error, EOFError, MemoryError, RuntimeError)
_DAMAGE_ERRORS = (*_FORMAT_ERRORS, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class _Unreadable(Exception):
    """A file that cannot be read; the message gives the reason."""


class _Storage:
    """The elements that tensors are views of; in old files, they come after the tensors."""

    def __init__(self, dtype: Any, values: np.ndarray | None = None) -> None:
        self.dtype = dtype
        self.values = values


class _Tensor:
    """A view of a storage, which becomes an array once all storages are read."""

    def __init__(self, storage: _Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> None:
        self._storage, self._offset, self._size, self._stride = storage, offset, size, stride

    def array(self) -> np.ndarray:
        """Copies the elements to an array.

        Raises:
            _Unreadable: the tensor reaches beyond its storage, or has more elements than both its storage and
                `_MAX_EXPANDED`.
        """
        values = self._storage.values
        counts = list(zip(self._size, self._stride, strict=True))
        if values is None or self._offset < 0 or any(n < 0 or step < 0 for n, step in counts):
            raise _Unreadable("a tensor has no storage, or a negative offset, size or stride")
        # An expanded tensor repeats elements of its storage, and each repetition is copied.
        if math.prod(self._size) > max(len(values), _MAX_EXPANDED):
            raise _Unreadable(f"a tensor of the shape {list(self._size)} has only {len(values)} elements")
        last = self._offset + sum((n - 1) * step for n, step in counts)
        if math.prod(self._size) and last >= len(values):
            raise _Unreadable("a tensor extends beyond its storage")
        strides = tuple(step * values.itemsize for step in self._stride)
        return np.lib.stride_tricks.as_strided(values[self._offset :], self._size, strides).copy()


class _IgnoredObject:
    """Stands in for objects that are not tensors, such as training counters, settings and NumPy numbers; empty."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        pass


class _Namespace:
    """Replaces `argparse.Namespace`, whose class attributes a pickle could change for the whole program."""

    values: Mapping[str, Any] = types.MappingProxyType({})

    def __setstate__(self, state: Any) -> None:
        self.values = dict(state)


class _Unpickler(pickle.Unpickler):
    """An unpickler that creates only tensors and plain values."""

    def __init__(self, file: BinaryIO, storage: Callable[[Any], _Storage]) -> None:
        super().__init__(file, encoding="utf-8")
        self._storage = storage

    def find_class(self, module: str, name: str) -> Any:
        if module in ("torch", "torch.storage") and name in _DTYPES:
            return name
        value = _GLOBALS.get(f"{module}.{name}")
        if value is None and module.partition(".")[0] in _IGNORED_PACKAGES:
            return _IgnoredObject
        if value is None:
            raise _Unreadable(f"it refers to {module}.{name}, which tensors do not need")
        return value

    def persistent_load(self, pid: Any) -> _Storage:
        return self._storage(pid)


def _tensor(storage: _Storage, offset: int, size: tuple, stride: tuple, *_: Any) -> _Tensor:
    return _Tensor(storage, offset, tuple(size), tuple(stride))


def _bytes(text: str, encoding: str) -> bytes:
    """Decodes bytes as old pickles represent them."""
    if encoding != "latin1":
        raise _Unreadable(f"text of the encoding {encoding!r}")
    return text.encode("latin1")


_GLOBALS: Mapping[str, Any] = {
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_parameter": lambda data, *_: data,
    "_codecs.encode": _bytes,
    "collections.OrderedDict": collections.OrderedDict,
    "argparse.Namespace": _Namespace,
}


def read_torch_file(path: str | Path) -> Any:
    """Reads a file of `torch.save`, in the layout of torch 1.6 or in the older one, with arrays in place of tensors.

    Raises:
        InputError: the file is missing or damaged, or holds something other than tensors and plain values.
    """
    try:
        with open(path, "rb") as file:
            return _with_arrays(_contents(file))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except _Unreadable as error:
        raise InputError(f"{path} cannot be read as a file of torch: {error}") from error
    except _DAMAGE_ERRORS as error:
        raise InputError(f"{path} cannot be read as a file of torch: it is damaged or truncated") from error


def _contents(file: BinaryIO) -> Any:
    if zipfile.is_zipfile(file):
        return _read_archive(file)
    file.seek(0)
    start = file.read(_OLD_START)
    if start.startswith(b"PK"):
        raise _Unreadable("it is truncated: the end of the archive is missing")
    if _OLD_MAGIC not in start:
        raise _Unreadable("it does not begin as torch writes files")
    return _read_old(file)


def _read_archive(file: BinaryIO) -> Any:
    with zipfile.ZipFile(file) as archive:
        mains = [name for name in archive.namelist() if f"/{name}".endswith("/data.pkl")]
        if len(mains) != 1:
            raise _Unreadable(f"it must hold one file data.pkl, but has {len(mains)}")
        main = mains[0]
        folder = main.removesuffix("data.pkl")
        storages: dict[str, _Storage] = {}

        def storage(pid: Any) -> _Storage:
            _, kind, key, _, count = pid
            if key not in storages:
                values = np.frombuffer(archive.read(f"{folder}data/{key}"), _DTYPES[kind])
                if len(values) < count:
                    raise _Unreadable(f"{folder}data/{key} is too short")
                storages[key] = _Storage(values.dtype, values)
            return storages[key]

        if f"{folder}byteorder" in archive.namelist() and archive.read(f"{folder}byteorder") != b"little":
            raise _Unreadable("its numbers are big-endian")
        return _Unpickler(io.BytesIO(archive.read(main)), storage).load()


def _read_old(file: BinaryIO) -> Any:
    storages: dict[str, _Storage] = {}

    def storage(pid: Any) -> _Storage:
        _, kind, key, _, _, view = pid
        if view is not None:
            raise _Unreadable("views of storages are not supported")
        return storages.setdefault(key, _Storage(np.dtype(_DTYPES[kind])))

    file.seek(0)
    for _ in range(3):  # the magic number, the version of the layout, and the type sizes of the writing machine
        _Unpickler(file, storage).load()
    contents = _Unpickler(file, storage).load()
    for key in _Unpickler(file, storage).load():
        dtype, count = storages[key].dtype, file.read(8)
        size = int.from_bytes(count, "little") * dtype.itemsize
        if len(count) < 8 or size > os.fstat(file.fileno()).st_size - file.tell():
            raise _Unreadable("the file ends too early")
        storages[key].values = np.frombuffer(file.read(size), dtype)
    return contents


def _with_arrays(contents: Any) -> Any:
    """Replaces tensors by arrays, and other mappings and sequences by plain dicts and lists."""
    if isinstance(contents, _Tensor):
        return contents.array()
    if isinstance(contents, _Namespace):
        return _with_arrays(contents.values)
    if isinstance(contents, Mapping):
        return {key: _with_arrays(value) for key, value in contents.items()}
    if isinstance(contents, list | tuple):
        return [_with_arrays(value) for value in contents]
    return contents
