"""Engines in processes of their own, run turn by turn, so that all meet the same machine.

A worker calls `serve`; a driver makes a `Worker` an engine and calls `take_turns`.
A turn counts only while other processes leave the machine alone.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK")
_FOREIGN_LIMIT = 0.05  # of the machine's processor time
_TRIES = 4


def serve(work: Callable[[], dict[str, Any]], about: dict[str, Any]) -> None:
    """The worker's side: says what it is, then does `work` whenever it is told to, until its input ends."""
    print(json.dumps({"ready": about}), flush=True)
    for line in sys.stdin:
        if line.strip() != "go":
            break
        begun, cpu, faults = time.perf_counter(), time.process_time(), _page_faults()
        result = work()
        numbers = {
            "seconds": time.perf_counter() - begun,
            "cpu_seconds": time.process_time() - cpu,
            "page_faults": _page_faults() - faults,
            "peak_gib": _peak_gib(),
        }
        print(json.dumps({"done": {**numbers, **result}}), flush=True)


class Worker:
    """The driver's side of one engine."""

    def __init__(
        self, name: str, command: list[str], log_path: str, variables: Mapping[str, str] | None = None
    ) -> None:
        """Starts the engine and waits until it is ready; `failure` is the end of its log if it is not.

        Args:
            name: of the engine.
            command: that starts it.
            log_path: for its standard error.
            variables: of its environment, beside those of this process.
        """
        self.name, self._log_path = name, log_path
        self.turns: list[dict[str, Any]] = []
        self.noisy_turns: list[dict[str, Any]] = []
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
        self.failure = ""
        if self.about is None:
            self.failure = self._last_words()

    def turn(self, tries: int = _TRIES) -> None:
        """Has the work done once, or until the machine was quiet, so many times at most."""
        for _ in range(tries):
            before, begun = busy_seconds(), time.perf_counter()
            self._orders.write("go\n")
            self._orders.flush()
            done = (self._answer() or {}).get("done")
            if done is None:
                raise RuntimeError(f"{self.name} died: {self._last_words()}")
            wall = time.perf_counter() - begun
            foreign = (busy_seconds() - before - done["cpu_seconds"]) / wall / os.cpu_count()
            if foreign < _FOREIGN_LIMIT:
                self.turns.append(done)
                return
            self.noisy_turns.append(done)

    def median(self, key: str) -> float:
        """Of the quiet turns, or of the noisy ones if there was no quiet one."""
        return statistics.median(turn[key] for turn in self.turns or self.noisy_turns)

    def close(self) -> None:
        """Ends the process."""
        self._orders.close()
        self._process.wait()

    def _last_words(self) -> str:
        with open(self._log_path) as log:
            return (log.read().strip().splitlines() or ["no output"])[-1]

    def _answer(self) -> dict[str, Any] | None:
        while line := self._answers.readline():
            if line.startswith(('{"ready"', '{"done"')):
                return json.loads(line)
        return None


def take_turns(workers: list[Worker], rounds: int, tries: int = _TRIES) -> None:
    """One warm-up round, then `rounds` that count, with so many tries at most to find the machine quiet.

    Each round begins with the next worker, so that none always follows the same one.
    """
    for round_number in range(rounds + 1):
        first = round_number % len(workers)
        for worker in workers[first:] + workers[:first]:
            worker.turn(tries if round_number else 1)
            if round_number == 0:
                worker.turns, worker.noisy_turns = [], []
        print(f"round {round_number} of {rounds} done", file=sys.stderr, flush=True)


def _page_faults() -> int:
    """Pages that this process has had mapped without reading a file."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _peak_gib() -> float:
    """This program's largest resident memory; `ru_maxrss` would begin with that of the process that started it."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) / 2**20


def busy_seconds() -> float:
    """Processor time that the machine has spent on anything."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq, *_ = (int(field) for field in file.readline().split()[1:])
    return (user + nice + system + irq + softirq) / _TICKS


def at_least_one(text: str) -> int:
    """The number that a flag of a benchmark gives."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be positive, got {text}")
    return int(text)


def all_at_least_one(text: str) -> list[int]:
    """The numbers that a flag gives, by commas."""
    return [at_least_one(number) for number in text.split(",")]
