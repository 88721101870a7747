"""Caches the weights of trained models, so that other processes and later runs with the same code can reuse them."""

import fcntl
import hashlib
import pathlib
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

ROOT = pathlib.Path(__file__).parents[2]
_CACHE = ROOT / ".pytest_cache" / "trained"


def trained_once(name: str, train: Callable[[], list[np.ndarray]]) -> list[np.ndarray]:
    """Returns the cached weights of this version of the code, or trains and caches them."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    path = _CACHE / f"{name}-{_code_hash()}.npz"
    with open(_CACHE / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            arrays = train()
            for old in _CACHE.glob(f"{name}-*.npz"):
                old.unlink()
            temporary = path.with_suffix(".tmp.npz")
            np.savez(temporary, *arrays)
            temporary.rename(path)
    with np.load(path) as arrays:
        return [arrays[f"arr_{number}"] for number in range(len(arrays.files))]


def _code_hash() -> str:
    """Returns a hash of all files that can affect the result."""
    digest = hashlib.sha256(f"{tf.__version__} {keras.__version__} {np.__version__}".encode())
    for path in sorted([*(ROOT / "t2t_keras").rglob("*.py"), *(ROOT / "tests" / "formats").glob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
