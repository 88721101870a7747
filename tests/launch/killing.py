"""An extension of launch.train that ends the process in a certain upload or call of steps, and its lease with it."""

import os
from collections.abc import Callable
from typing import Any

from t2t_keras.machine import remote
from t2t_keras.machine.object_store import Store
from t2t_keras.training.step import TrainingStep

remote.LEASE_SECONDS, remote._RENEWALS = 1e-6, 1e-9  # type: ignore[assignment]


def ending(function: Callable[..., Any], variable: str) -> Callable[..., Any]:
    """A function in whose call of the number that the variable of the environment has the process ends."""
    left = int(os.environ.get(variable, 1000))

    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if not left:
            os._exit(9)
        return function(*arguments, **named)

    return call


Store.put = ending(Store.put, "UPLOADS")  # type: ignore[method-assign]
TrainingStep.run = ending(TrainingStep.run, "CALLS")  # type: ignore[method-assign]
