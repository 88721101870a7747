"""An extension of launch.distil that makes short chunks, and kills the process instead of a certain call."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from t2t_keras import distillation


def killing(function: Callable[..., Any], variable: str) -> Callable[..., Any]:
    """A function that can be called as often as the variable of the environment says."""
    left = int(os.environ.get(variable, 1000))

    def call(*arguments: Any) -> Any:
        nonlocal left
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return function(*arguments)

    return call


distillation.CHUNK_LINES = 2
distillation.write_json = killing(distillation.write_json, "RECORDS")
Path.replace = killing(Path.replace, "RENAMED")  # type: ignore[method-assign]
