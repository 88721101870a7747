"""An extension of launch.train that exits without releasing its lease, in a given upload or call of the step."""

import os
from collections.abc import Callable
from typing import Any

from t2t_keras.machine import remote
from t2t_keras.machine.object_store import Store
from t2t_keras.training.step import TrainingStep

remote.LEASE_SECONDS, remote._RENEWALS = 1e-6, 1e-9  # type: ignore[assignment]


def exit_in_call(function: Callable[..., Any], variable: str) -> Callable[..., Any]:
    """A function that exits in the call with the number that an environment variable contains."""
    remaining = int(os.environ.get(variable, 1000))

    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal remaining
        remaining -= 1
        if not remaining:
            os._exit(9)
        return function(*arguments, **named)

    return call


Store.put = exit_in_call(Store.put, "UPLOADS")  # type: ignore[method-assign]
TrainingStep.run = exit_in_call(TrainingStep.run, "CALLS")  # type: ignore[method-assign]
