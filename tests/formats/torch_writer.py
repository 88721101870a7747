"""Writes files like torch.save, without torch: in the current layout and in that before torch 1.6."""

import collections
import contextlib
import io
import math
import pathlib
import pickle
import sys
import types
import zipfile
from typing import Any

import numpy as np

STORAGES = {
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
}


class Storage:
    """The numbers of a tensor, which are written outside the pickle."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values


@contextlib.contextmanager
def fake_torch():
    """Provides modules with torch's names, to which the pickle refers."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")

    def _rebuild_tensor_v2(*_):
        raise AssertionError("only the name is pickled")

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    for name in STORAGES.values():
        setattr(torch, name, type(name, (), {"__module__": "torch"}))
    before = {name: sys.modules.get(name) for name in ("torch", "torch._utils")}
    sys.modules |= {"torch": torch, "torch._utils": utils}
    try:
        yield torch, utils
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


class Tensor:
    """An array that is pickled like a tensor of torch."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.storage = Storage(np.ascontiguousarray(array).reshape(-1))

    def __reduce__(self) -> tuple:
        strides = tuple(math.prod(self.array.shape[axis + 1 :]) for axis in range(self.array.ndim))
        arguments: tuple = (self.storage, 0, self.array.shape, strides, False, collections.OrderedDict())
        return sys.modules["torch._utils"]._rebuild_tensor_v2, arguments


class _Pickler(pickle.Pickler):
    def __init__(self, file, is_old: bool) -> None:
        super().__init__(file, protocol=2)
        self.is_old = is_old
        self.storages: list[Storage] = []

    def persistent_id(self, obj: Any) -> tuple | None:
        if not isinstance(obj, Storage):
            return None
        if obj not in self.storages:
            self.storages.append(obj)
        kind = getattr(sys.modules["torch"], STORAGES[obj.values.dtype.name])
        key = str(self.storages.index(obj))
        return ("storage", kind, key, "cpu", obj.values.size, *([None] if self.is_old else []))


def save(contents: Any, path: pathlib.Path, is_old: bool = False) -> None:
    """Writes nested plain values, with arrays as tensors."""

    def with_tensors(values: Any) -> Any:
        if isinstance(values, np.ndarray):
            return Tensor(values)
        return {name: with_tensors(value) for name, value in values.items()} if isinstance(values, dict) else values

    file = io.BytesIO()
    with fake_torch():
        if is_old:
            for value in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}):
                pickle.dump(value, file, protocol=2)
        pickler = _Pickler(file, is_old)
        pickler.dump(with_tensors(contents))
    if is_old:
        pickle.dump([str(number) for number in range(len(pickler.storages))], file, protocol=2)
        for storage in pickler.storages:
            file.write(storage.values.size.to_bytes(8, "little") + storage.values.tobytes())
        path.write_bytes(file.getvalue())
        return
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", file.getvalue())
        for number, storage in enumerate(pickler.storages):
            archive.writestr(f"archive/data/{number}", storage.values.tobytes())
        archive.writestr("archive/version", "3\n")
