"""Handles the signals that stop a training."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

# SIGHUP is sent when the terminal is closed.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopSignals:
    """A context that records stop signals instead of ending the process.

    A line on standard error confirms each signal. A second Ctrl-C raises KeyboardInterrupt. A SIGHUP that is ignored,
    as under nohup, stays ignored. Python delivers signals only to the main thread: in other threads, where a framework
    may run its workers, the context does nothing.

    Attributes:
        received: number of the last signal received, or 0.
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
            # None means that the handler was not installed by Python, which cannot restore it.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _receive(self, number: int, _: FrameType | None) -> None:
        if self.received == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt  # the second Ctrl-C stops at once, without saving
        self.received = number
        again = "; press Ctrl-C again to stop at once" if number == signal.SIGINT else ""
        with contextlib.suppress(OSError):  # of a closed terminal
            # Not `print`, which fails if the signal interrupts another `print`.
            os.write(
                2, f"{signal.Signals(number).name}: ending the training after its progress is saved{again}\n".encode()
            )
