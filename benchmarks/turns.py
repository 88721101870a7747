"""Runs engines in separate processes, which take turns on the same machine.

A worker calls `serve`. A driver creates a `Worker` for each engine and calls `take_turns`. A turn counts only if other
processes use little of the machine.
"""

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from t2t_keras.errors import InputError
from t2t_keras.machine.peak_memory import peak_bytes
from t2t_keras.values import PositiveInt, parsed

_TICKS = os.sysconf("SC_CLK_TCK")
_FOREIGN_LIMIT = 0.05  # of the machine's processor time
_TRIES = 4


def serve(work: Callable[[], dict[str, Any]], about: dict[str, Any]) -> None:
    """Reports `about`, and then calls `work` on each request until the input ends; called by a worker."""
    print(json.dumps({"ready": about}), flush=True)
    for line in sys.stdin:
        if line.strip() != "go":
            break
        started, cpu, faults = time.perf_counter(), time.process_time(), _page_faults()
        result = work()
        numbers = {
            "seconds": time.perf_counter() - started,
            "cpu_seconds": time.process_time() - cpu,
            "page_faults": _page_faults() - faults,
            "peak_gib": peak_bytes() / 2**30,
        }
        print(json.dumps({"done": {**numbers, **result}}), flush=True)


class Worker:
    """Starts the process of an engine, and waits until it is ready.

    Args:
        name: name of the engine.
        command: command that starts it.
        log_path: file for its standard error.
        variables: environment variables in addition to those of this process.

    Attributes:
        about: what the engine reported about itself, or None if it did not start.
        failure: last line of the log if the engine did not start, else "".
        quiet_turns: numbers of each turn in which other processes used little of the machine.
        noisy_turns: numbers of all other turns.
    """

    def __init__(
        self, name: str, command: list[str], log_path: str, variables: Mapping[str, str] | None = None
    ) -> None:
        self.name, self._log_path = name, log_path
        self.forget_turns()
        with open(log_path, "w") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **(variables or {})},
            )
        assert self._process.stdin and self._process.stdout
        self._orders, self._answers = self._process.stdin, self._process.stdout
        self.about: Any = (self._answer() or {}).get("ready")
        self.failure = self._last_line() if self.about is None else ""

    def turn(self, tries: int = _TRIES) -> None:
        """Requests the work, and repeats it until the machine was quiet, at most `tries` times."""
        for _ in range(tries):
            before, started = busy_seconds(), time.perf_counter()
            with contextlib.suppress(BrokenPipeError):  # of a process that died since its last turn
                self._orders.write("go\n")
                self._orders.flush()
            done = (self._answer() or {}).get("done")
            if done is None:
                raise RuntimeError(f"{self.name} died: {self._last_line()}")
            wall = time.perf_counter() - started
            foreign = (busy_seconds() - before - done["cpu_seconds"]) / wall / os.cpu_count()
            if foreign < _FOREIGN_LIMIT:
                self.quiet_turns.append(done)
                return
            self.noisy_turns.append(done)

    @property
    def turns(self) -> list[dict[str, Any]]:
        """The turns that count: the quiet ones or, if there are none, the noisy ones."""
        return self.quiet_turns or self.noisy_turns

    def forget_turns(self) -> None:
        """Discards the numbers of all turns so far."""
        self.quiet_turns: list[dict[str, Any]] = []
        self.noisy_turns: list[dict[str, Any]] = []

    def median(self, key: str) -> float:
        """Returns the median of a number over `turns`."""
        return statistics.median(turn[key] for turn in self.turns)

    def close(self) -> None:
        """Ends the process."""
        self._orders.close()
        self._process.wait()

    def _last_line(self) -> str:
        with open(self._log_path) as log:
            return last_line(log.read())

    def _answer(self) -> dict[str, Any] | None:
        while line := self._answers.readline():
            if line.startswith(('{"ready"', '{"done"')):
                return json.loads(line)
        return None


def take_turns(workers: list[Worker], rounds: int, tries: int = _TRIES) -> None:
    """Runs a warm-up round and then `rounds` rounds, in which each worker has at most `tries` tries of a turn.

    Each round begins with the next worker, so that no worker always follows the same one.

    Raises:
        SystemExit: there are no workers.
    """
    if not workers:
        raise SystemExit("none of the engines can run")
    for round_number in range(rounds + 1):
        first = round_number % len(workers)
        for worker in workers[first:] + workers[:first]:
            worker.turn(tries if round_number else 1)
            if round_number == 0:
                worker.forget_turns()
        print(f"round {round_number} of {rounds} done", file=sys.stderr, flush=True)


def last_line(text: str) -> str:
    """Returns the last line of a log that is not blank, which usually names the error."""
    return (text.strip().splitlines() or ["no output"])[-1]


def _page_faults() -> int:
    """Returns the number of pages that were mapped without reading a file."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def busy_seconds() -> float:
    """Returns the processor time of all processes of the machine."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq, *_ = (int(field) for field in file.readline().split()[1:])
    return (user + nice + system + irq + softirq) / _TICKS


def number(annotation: Any = PositiveInt) -> Callable[[str], Any]:
    """Returns the `type` of an argparse flag: a number such as `PositiveInt`, or a tuple of numbers."""

    def parse(text: str) -> Any:
        try:
            return parsed("the value", annotation, text)
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse
