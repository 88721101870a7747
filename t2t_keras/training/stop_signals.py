"""Signals that ask a training to stop."""

import signal
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Takes note of signals instead of dying of them, as long as the context lasts.

    Attributes:
        received: the number of the last one, or 0.
    """

    def __init__(self) -> None:
        self.received = 0
        self._handlers: dict[int, signal.Handlers] = {}

    def __enter__(self) -> "StopSignals":
        self._handlers = {number: signal.signal(number, self._receive) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _receive(self, number: int, _: FrameType | None) -> None:
        if self.received == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt  # asked twice: at once, without saving
        self.received = number
