"""Signals that ask a training to stop."""

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Takes note of signals instead of dying of them, as long as the context lasts.

    Attributes:
        received: the number of the last one, or 0.
    """

    def __init__(self) -> None:
        self.received = 0
        self._handlers: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {}

    def __enter__(self) -> "StopSignals":
        self._handlers = {number: signal.signal(number, self._receive) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            # None: one that was not installed by Python, and cannot be put back by it.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _receive(self, number: int, _: FrameType | None) -> None:
        if self.received == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt  # asked twice: at once, without saving
        self.received = number
