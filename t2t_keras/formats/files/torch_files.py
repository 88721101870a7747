"""Reads what torch.save wrote, without torch and without running code that a file may hold.

A pickle can call any function. Here it gets those few that tensors and plain values need, and an error for all others.
"""

import collections
import io
import math
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
# Packages whose objects a checkpoint may hold beside tensors.
_LEFT_OUT = ("fairseq", "numpy", "omegaconf", "torch")
# The first number in files of torch before 1.6.
_OLD_MAGIC = 0x1950A86A20F9469CFC6C


class _Storage:
    """Numbers that tensors are views of; of old files they come after the tensors."""

    def __init__(self, dtype: Any, values: np.ndarray | None = None) -> None:
        self.dtype = dtype
        self.values = values


class _Tensor:
    """A view of a storage, made into an array when all storages are read."""

    def __init__(self, storage: _Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> None:
        self._storage, self._offset, self._size, self._stride = storage, offset, size, stride

    def array(self) -> np.ndarray:
        """A copy; ValueError if it reaches beyond its storage."""
        values = self._storage.values
        counts = list(zip(self._size, self._stride, strict=True))
        if values is None or self._offset < 0 or any(n < 0 or step < 0 for n, step in counts):
            raise ValueError("a tensor without numbers")
        last = self._offset + sum((n - 1) * step for n, step in counts)
        if math.prod(self._size) and last >= len(values):
            raise ValueError("a tensor reaches beyond its numbers")
        strides = tuple(step * values.itemsize for step in self._stride)
        return np.lib.stride_tricks.as_strided(values[self._offset :], self._size, strides).copy()


class _LeftOut:
    """Stands for what is no tensor: counters of a training, settings, numbers of NumPy. It keeps nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        pass


class _Namespace:
    """In place of argparse's, whose attributes a pickle could set for all programs."""

    values: Mapping[str, Any] = types.MappingProxyType({})

    def __setstate__(self, state: Any) -> None:
        self.values = dict(state)


class _Unpickler(pickle.Unpickler):
    """Makes tensors and plain values, and nothing else."""

    def __init__(self, file: BinaryIO, storage: Callable[[Any], _Storage]) -> None:
        super().__init__(file, encoding="utf-8")
        self._storage = storage

    def find_class(self, module: str, name: str) -> Any:
        if module in ("torch", "torch.storage") and name in _DTYPES:
            return name
        known = _GLOBALS.get(f"{module}.{name}")
        if known is None and module.partition(".")[0] in _LEFT_OUT:
            return _LeftOut
        if known is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no tensor needs")
        return known

    def persistent_load(self, pid: Any) -> _Storage:
        return self._storage(pid)


def _tensor(storage: _Storage, offset: int, size: tuple, stride: tuple, *_: Any) -> _Tensor:
    return _Tensor(storage, offset, tuple(size), tuple(stride))


def _bytes(text: str, encoding: str) -> bytes:
    """How old pickles hold bytes."""
    if encoding != "latin1":
        raise ValueError(f"text of the encoding {encoding!r}")
    return text.encode("latin1")


def _parameter(data: _Tensor, *_: Any) -> _Tensor:
    return data


_GLOBALS: Mapping[str, Any] = {
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "_codecs.encode": _bytes,
    "collections.OrderedDict": collections.OrderedDict,
    "argparse.Namespace": _Namespace,
}


def read_torch_file(path: str | Path) -> Any:
    """Reads a file of torch.save, with arrays in place of tensors; of either layout, that of torch 1.6 or before.

    Raises:
        InputError: the file is missing, damaged, or holds something other than tensors and plain values.
    """
    try:
        with open(path, "rb") as file:
            contents = _read_archive(file) if zipfile.is_zipfile(file) else _read_old(file)
        return _with_arrays(contents)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except (
        *(pickle.UnpicklingError, zipfile.BadZipFile, EOFError, OSError, MemoryError, RecursionError),
        *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RuntimeError, zlib.error),
    ) as error:
        raise InputError(f"{path} cannot be read as a file of torch: {error}") from error


def _read_archive(file: BinaryIO) -> Any:
    with zipfile.ZipFile(file) as archive:
        (main,) = (name for name in archive.namelist() if name.endswith("data.pkl"))
        folder = main.removesuffix("data.pkl")
        storages: dict[str, _Storage] = {}

        def storage(pid: Any) -> _Storage:
            _, kind, key, _, count = pid
            if key not in storages:
                values = np.frombuffer(archive.read(f"{folder}data/{key}"), _DTYPES[kind])
                if len(values) < count:
                    raise ValueError(f"{folder}data/{key} is too short")
                storages[key] = _Storage(values.dtype, values)
            return storages[key]

        if f"{folder}byteorder" in archive.namelist() and archive.read(f"{folder}byteorder") != b"little":
            raise ValueError("its numbers begin with their highest byte")
        return _Unpickler(io.BytesIO(archive.read(main)), storage).load()


def _read_old(file: BinaryIO) -> Any:
    storages: dict[str, _Storage] = {}

    def storage(pid: Any) -> _Storage:
        _, kind, key, _, _, view = pid
        if view is not None:
            raise ValueError("views of storages are not supported")
        return storages.setdefault(key, _Storage(np.dtype(_DTYPES[kind])))

    file.seek(0)
    if _Unpickler(file, storage).load() != _OLD_MAGIC:
        raise ValueError("it does not begin as such files do")
    for _ in range(2):  # the version of the layout; sizes of the machine that wrote it
        _Unpickler(file, storage).load()
    contents = _Unpickler(file, storage).load()
    for key in _Unpickler(file, storage).load():
        count = int.from_bytes(file.read(8), "little")
        dtype = storages[key].dtype
        data = file.read(count * dtype.itemsize)
        if len(data) < count * dtype.itemsize:
            raise EOFError("the file ends too early")
        storages[key].values = np.frombuffer(data, dtype)
    return contents


def _with_arrays(contents: Any) -> Any:
    """The same with arrays in place of tensors, and plain dicts and lists."""
    if isinstance(contents, _Tensor):
        return contents.array()
    if isinstance(contents, _Namespace):
        return _with_arrays(contents.values)
    if isinstance(contents, Mapping):
        return {key: _with_arrays(value) for key, value in contents.items()}
    if isinstance(contents, list | tuple):
        return [_with_arrays(value) for value in contents]
    return contents
