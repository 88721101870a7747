"""Reads files of named tensors in the formats safetensors, .npz and torch; writes safetensors."""

import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from t2t_keras.errors import InputError, optional_module
from t2t_keras.formats.files.setting_files import read_bytes, read_json
from t2t_keras.formats.files.torch_files import read_torch_file
from t2t_keras.machine.files import DAMAGED_NPZ, replacing

_MISSING = "the package safetensors is missing: pip install '.[convert]'"
# Dtypes by safetensors name. The package's own function for NumPy does not support bfloat16.
_TYPES = {"BF16": ml_dtypes.bfloat16, "BOOL": np.bool_}
_TYPES |= {f"{kind.upper()}{8 * size}": f"<{kind}{size}" for size in (1, 2, 4, 8) for kind in "iu"}
_TYPES |= {f"F{8 * size}": f"<f{size}" for size in (2, 4, 8)}


def read_tensors(folder: Path, names: Sequence[str]) -> tuple[Path, dict[str, np.ndarray]]:
    """Reads the first of several files that exists in a folder, whole or in shards.

    The shards of model.safetensors are model-00001-of-00002.safetensors and so on. model.safetensors.index.json, if it
    exists, lists the shard of each tensor.

    Returns:
        The path of the file or of the first shard, and the tensors by name.

    Raises:
        InputError: none of the files exists, a shard is missing, or a file is damaged or does not hold tensors by name.
    """
    for name in names:
        paths = [folder / name] if (folder / name).exists() else _shards(folder, name)
        if not paths:
            continue
        tensors: dict[str, np.ndarray] = {}
        for path in paths:
            if not path.exists():
                raise InputError(f"{path} is missing: the weights are in {len(paths)} files, from {paths[0].name} on")
            tensors |= read_safetensors(path) if path.suffix == ".safetensors" else _read_torch_tensors(path)
        if missing := sorted(_index(folder, name).keys() - tensors.keys()):
            raise InputError(f"{_index_path(folder, name)}: {missing[0]} is in none of the {len(paths)} files")
        return paths[0], tensors
    raise InputError(f"{folder} has no weights: none of {', '.join(names)}")


def _shards(folder: Path, name: str) -> list[Path]:
    """Returns the paths of all shards of a file, also missing ones; empty if there are no shards."""
    stem, suffix = name.rsplit(".", 1)
    files = dict.fromkeys(_index(folder, name).values())
    pattern = re.compile(rf"{re.escape(stem)}-\d+-of-(\d{{1,5}})\.{suffix}")
    matches = [pattern.fullmatch(file) for file in (*files, *sorted(path.name for path in folder.iterdir()))]
    for count in (match[1] for match in matches if match):
        numbered = (f"{stem}-{number:0{len(count)}}-of-{count}.{suffix}" for number in range(1, int(count) + 1))
        files |= dict.fromkeys(numbered)
        break
    return [folder / file for file in sorted(files)]


def _index(folder: Path, name: str) -> dict[str, str]:
    """Returns the file of each tensor of a file in shards; empty if there is no index.

    Raises:
        InputError: the index is damaged, or names files outside of the folder.
    """
    path = _index_path(folder, name)
    if not path.exists():
        return {}
    files = read_json(path).get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
        raise InputError(f"{path} must define weight_map, the name of the file of each tensor")
    for file in files.values():
        if Path(file).name != file:
            raise InputError(f"{path}: {file!r} is not the name of a file beside it")
    return files


def _index_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.index.json"


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Reads all arrays of a .npz file; pickled arrays are not allowed.

    Raises:
        InputError: the file cannot be read; names it.
    """
    try:
        with open(path, "rb") as file:
            is_archive = zipfile.is_zipfile(file)
            file.seek(0)
            if not is_archive:
                raise ValueError("it is not an archive, or is truncated")
            with np.load(file) as arrays:
                return dict(arrays)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except DAMAGED_NPZ as error:
        raise InputError(f"{path} cannot be read as .npz: {error}") from error


def _read_torch_tensors(path: Path) -> dict[str, np.ndarray]:
    """Reads the tensors of a torch file."""
    contents = read_torch_file(path)
    if not isinstance(contents, Mapping):
        raise InputError(f"{path} must contain tensors by name, but contains {type(contents).__name__}")
    if odd := [name for name, value in contents.items() if not isinstance(value, np.ndarray)]:
        raise InputError(f"{path}: {odd[0]!r} is not a tensor")
    return dict(contents)


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Reads all tensors of a safetensors file.

    Raises:
        InputError: the file cannot be read, a tensor has a dtype that NumPy lacks, or the package is missing.
    """
    safetensors, contents = _safetensors(), read_bytes(path)
    try:
        items = safetensors.deserialize(contents)
    except safetensors.SafetensorError as error:
        raise InputError(f"{path} cannot be read as safetensors: {error}") from error
    for name, item in items:
        if item["dtype"] not in _TYPES:
            valid = ", ".join(_TYPES)
            raise InputError(f"{path}: the tensor {name} has the dtype {item['dtype']}, which is not one of {valid}")
    return {name: np.frombuffer(item["data"], _TYPES[item["dtype"]]).reshape(item["shape"]) for name, item in items}


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes tensors by name to a safetensors file, atomically."""
    with replacing(path, "wb") as file:
        file.write(_safetensors().numpy.save(dict(tensors), metadata={"format": "pt"}))


def _safetensors() -> Any:
    optional_module("safetensors.numpy", _MISSING)
    return optional_module("safetensors", _MISSING)
