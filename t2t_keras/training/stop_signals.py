"""Signals that ask a training to stop."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

# The last one comes when the terminal is closed.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopSignals:
    """Records signals inside its context instead of ending the process; `received` is the last one's number, or 0.

    Python hands signals to the main thread alone. In another one, where a framework may run its workers, nothing is
    recorded, and signals do what they did. A hangup that is ignored, as by nohup, stays ignored.
    """

    def __init__(self) -> None:
        self.received = 0
        self._handlers: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {}

    def __enter__(self) -> "StopSignals":
        self.received = 0
        if threading.current_thread() is threading.main_thread():
            is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            numbers = [number for number in SIGNALS if not (number == signal.SIGHUP and is_ignored)]
            self._handlers = {number: signal.signal(number, self._receive) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            # None: a handler that was not installed by Python, which cannot restore it.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _receive(self, number: int, _: FrameType | None) -> None:
        if self.received == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt  # the second Ctrl-C stops at once, without saving
        self.received = number
