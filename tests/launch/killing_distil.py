"""An extension of launch.distil that makes short chunks, and kills the process before it writes a certain record."""

import os
import signal
from pathlib import Path
from typing import Any

from t2t_keras import distillation

distillation.CHUNK_LINES = 2
_write, _replace = distillation.write_json, Path.replace
_left = int(os.environ.get("RECORDS", 1000))
_replaced = int(os.environ.get("RENAMED", 1000))


def _write_or_die(path: Path, values: Any) -> None:
    global _left
    if not _left:
        os.kill(os.getpid(), signal.SIGKILL)
    _left -= 1
    _write(path, values)


def _replace_or_die(path: Path, target: Path) -> Path:
    global _replaced
    if not _replaced:
        os.kill(os.getpid(), signal.SIGKILL)
    _replaced -= 1
    return _replace(path, target)


distillation.write_json = _write_or_die
Path.replace = _replace_or_die  # type: ignore[method-assign]
