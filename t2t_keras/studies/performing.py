"""Performs a study's jobs one after the other, each phase in a process of its own, whose end frees all it took."""

import multiprocessing
import os
import pathlib
import pkgutil
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NamedTuple

from t2t_keras.errors import InputError
from t2t_keras.machine.locking import BusyError
from t2t_keras.machine.notices import import_tensorflow
from t2t_keras.machine.processes import ProcessDiedError, call_apart
from t2t_keras.studies.job import Job
from t2t_keras.studies.states import state, write_record
from t2t_keras.training.stop_signals import StopSignals


class StoppedError(Exception):
    """A signal stopped a phase, which goes on from there when it is run again; `signal` is its number."""

    def __init__(self, signal: int) -> None:
        super().__init__(f"stopped by signal {signal}")
        self.signal = signal


class Performed(NamedTuple):
    """What became of jobs that are not finished.

    Attributes:
        failed: names of those that failed.
        busy: names of those that another process has in hand.
        waiting: names of those that need others which are not finished.
        signal: number of the signal that stopped the work, or 0.
    """

    failed: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    signal: int = 0


class _Answer(NamedTuple):
    """How a phase ended: "done", "failed", "busy" or "stopped", with its results, a message or a signal's number."""

    kind: str
    value: Any


class Performer:
    """Performs jobs in a study's folder.

    `jobs` are all of the study, `report` takes a line of text for each, `on_finished` is called whenever one is
    finished, and `call` calls a function with arguments in a process of its own.
    """

    def __init__(
        self,
        study_dir: pathlib.Path,
        jobs: Sequence[Job],
        report: Callable[[str], None],
        on_finished: Callable[[], object],
        call: Callable[..., Any] = call_apart,
    ) -> None:
        self._study_dir = study_dir
        self._jobs = {job.name: job for job in jobs}
        self._report, self._on_finished, self._call = report, on_finished, call
        self._signals = _HandedOnSignals()

    def perform(self, names: Sequence[str]) -> Performed:
        """Performs the named jobs that are not finished, in their order, but none before those that it needs.

        SIGTERM and SIGINT stop the work: a training saves first. A job that fails is reported, and the others go on.
        """
        pending = [self._jobs[name] for name in names]
        ended: dict[str, list[str]] = {"failed": [], "busy": []}
        with self._signals:
            while job := next((job for job in pending if not self._unfinished_needs(job)), None):
                pending.remove(job)
                found = state(job, self._study_dir)
                if found.kind == "finished":
                    continue
                again = f" again, because settings changed: {found.text}" if found.kind == "outdated" else ""
                self._report(f"{job.name}: begins{again}")
                answer = self._performed(job)
                if answer.kind == "stopped":
                    self._report(f"{job.name}: stopped; the same command goes on from here")
                    return Performed(tuple(ended["failed"]), tuple(ended["busy"]), signal=answer.value)
                if answer.kind == "done":
                    write_record(job, self._study_dir, answer.value)
                    self._report(f"{job.name}: finished")
                    self._on_finished()
                else:
                    ended[answer.kind].append(job.name)
                    self._report(f"{job.name}: {answer.kind}: {answer.value}")
        for job in pending:
            self._report(f"{job.name}: waits for {', '.join(self._unfinished_needs(job))}")
        return Performed(tuple(ended["failed"]), tuple(ended["busy"]), tuple(job.name for job in pending))

    def _unfinished_needs(self, job: Job) -> list[str]:
        return [name for name in job.needs if state(self._jobs[name], self._study_dir).kind != "finished"]

    def _performed(self, job: Job) -> _Answer:
        """Runs the phases of a job; what they give together is the answer's value."""
        results: dict[str, Any] = {}
        for phase in job.phases:
            if self._signals.received:
                return _Answer("stopped", self._signals.received)
            try:
                answer = self._call(answer_of_phase, phase, job, self._study_dir, started=self._signals.hand_on)
            except ProcessDiedError as error:
                answer = _Answer("failed", f"{error}; what it wrote to standard error says why")
            if answer.kind != "done":
                return _Answer("stopped", self._signals.received) if self._signals.received else answer
            results |= answer.value
        return _Answer("done", results)


class _HandedOnSignals(StopSignals):
    """Hands signals on to the process that runs a phase, as SIGTERM, by which a training saves and ends."""

    def _receive(self, number: int, frame: FrameType | None) -> None:
        super()._receive(number, frame)
        self.hand_on()

    def hand_on(self) -> None:
        """Hands on what was received, also to a process that starts at that moment."""
        for child in multiprocessing.active_children() if self.received else ():
            child.terminate()


def answer_of_phase(phase: str, job: Job, study_dir: pathlib.Path) -> _Answer:
    """Runs one phase of a job, in the process that it has for itself."""
    os.environ["KERAS_BACKEND"] = "tensorflow"  # which the phases need, whatever it says
    import_tensorflow()
    function = pkgutil.resolve_name(phase)
    try:
        return _Answer("done", function(job, study_dir))
    except StoppedError as error:
        return _Answer("stopped", error.signal)
    except BusyError as error:
        return _Answer("busy", str(error))
    except (InputError, OSError) as error:
        return _Answer("failed", str(error))
