"""Keeps what a test has trained, so that other processes, and later sessions of the same code, need not train it."""

import fcntl
import hashlib
import pathlib
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

ROOT = pathlib.Path(__file__).parents[2]
_KEPT = ROOT / ".pytest_cache" / "trained"


def trained_once(name: str, train: Callable[[], list[np.ndarray]]) -> list[np.ndarray]:
    """Weights that were trained by this very code, or the result of `train`, which is kept."""
    _KEPT.mkdir(parents=True, exist_ok=True)
    path = _KEPT / f"{name}-{_code_hash()}.npz"
    with open(_KEPT / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            arrays = train()
            for old in _KEPT.glob(f"{name}-*.npz"):
                old.unlink()
            temporary = path.with_suffix(".tmp.npz")
            np.savez(temporary, *arrays)
            temporary.rename(path)
    with np.load(path) as kept:
        return [kept[f"arr_{number}"] for number in range(len(kept.files))]


def _code_hash() -> str:
    """Of all that the result may depend on."""
    digest = hashlib.sha256(f"{tf.__version__} {keras.__version__} {np.__version__}".encode())
    for path in sorted([*(ROOT / "t2t_keras").rglob("*.py"), *(ROOT / "tests" / "formats").glob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
