"""Performs a study's jobs one after another, each phase in a separate process, so that all its memory is freed."""

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
from t2t_keras.machine.processes import ProcessDiedError, call_in_process
from t2t_keras.studies.job import Job
from t2t_keras.studies.states import state, write_record
from t2t_keras.training.stop_signals import StopSignals


class StoppedError(Exception):
    """A signal stopped a phase, which resumes when it is run again; `signal` is the number of the signal."""

    def __init__(self, signal: int) -> None:
        super().__init__(f"stopped by signal {signal}")
        self.signal = signal


class Performed(NamedTuple):
    """The outcome of performing jobs: those that could not be finished.

    Attributes:
        failed: names of the jobs that failed.
        busy: names of the jobs that are locked by a different process.
        waiting: names of the jobs that need other jobs, which are not finished.
        signal: number of the signal that stopped the work, or 0.
    """

    failed: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    signal: int = 0


class _Answer(NamedTuple):
    """The outcome of a phase.

    Attributes:
        kind: "done", "failed", "busy" or "stopped".
        value: results by name if done, the number of the signal if stopped, else an error message.
    """

    kind: str
    value: Any


class Performer:
    """Performs jobs in a study's folder.

    Args:
        study_dir: folder of the study.
        jobs: all jobs of the study.
        report: called with lines of text about the progress.
        on_finished: called whenever a job is finished.
        call: calls a function with arguments in a separate process.
    """

    def __init__(
        self,
        study_dir: pathlib.Path,
        jobs: Sequence[Job],
        report: Callable[[str], None],
        on_finished: Callable[[], object],
        call: Callable[..., Any] = call_in_process,
    ) -> None:
        self._study_dir = study_dir
        self._jobs = {job.name: job for job in jobs}
        self._report, self._on_finished, self._call = report, on_finished, call
        self._signals = _ForwardedSignals()

    def perform(self, names: Sequence[str]) -> Performed:
        """Performs unfinished jobs in the given order, but each one after the jobs that it needs.

        SIGTERM and SIGINT stop the work; a training saves its progress first. If a job fails, the error is reported and
        the remaining jobs are performed.
        """
        pending = [self._jobs[name] for name in names]
        failures: dict[str, list[str]] = {"failed": [], "busy": []}
        with self._signals:
            while job := next((job for job in pending if not self._unfinished_needs(job)), None):
                pending.remove(job)
                job_state = state(job, self._study_dir)
                if job_state.kind == "finished":
                    continue
                note = f" again, because settings changed: {job_state.text}" if job_state.kind == "outdated" else ""
                self._report(f"{job.name}: begins{note}")
                answer = self._run_phases(job)
                if answer.kind == "stopped":
                    self._report(f"{job.name}: stopped; run the same command to resume")
                    return Performed(tuple(failures["failed"]), tuple(failures["busy"]), signal=answer.value)
                if answer.kind == "done":
                    write_record(job, self._study_dir, answer.value)
                    self._report(f"{job.name}: finished")
                    self._on_finished()
                else:
                    failures[answer.kind].append(job.name)
                    self._report(f"{job.name}: {answer.kind}: {answer.value}")
        for job in pending:
            self._report(f"{job.name}: waits for {', '.join(self._unfinished_needs(job))}")
        return Performed(tuple(failures["failed"]), tuple(failures["busy"]), tuple(job.name for job in pending))

    def _unfinished_needs(self, job: Job) -> list[str]:
        return [name for name in job.needs if state(self._jobs[name], self._study_dir).kind != "finished"]

    def _run_phases(self, job: Job) -> _Answer:
        """Runs the phases of a job and merges their results."""
        results: dict[str, Any] = {}
        for phase in job.phases:
            if self._signals.received:
                return _Answer("stopped", self._signals.received)
            try:
                answer = self._call(answer_of_phase, phase, job, self._study_dir, started=self._signals.forward)
            except ProcessDiedError as error:
                answer = _Answer("failed", f"{error}; the reason is on its standard error")
            if answer.kind != "done":
                return _Answer("stopped", self._signals.received) if self._signals.received else answer
            results |= answer.value
        return _Answer("done", results)


class _ForwardedSignals(StopSignals):
    """Forwards signals as SIGTERM to the process that runs a phase, so that a training saves its progress and ends."""

    def _receive(self, number: int, frame: FrameType | None) -> None:
        super()._receive(number, frame)
        self.forward()

    def forward(self) -> None:
        """Forwards a received signal; also called when a process starts, which may have missed the signal."""
        for child in multiprocessing.active_children() if self.received else ():
            child.terminate()


def answer_of_phase(phase: str, job: Job, study_dir: pathlib.Path) -> _Answer:
    """Runs one phase of a job; called in a separate process."""
    os.environ["KERAS_BACKEND"] = "tensorflow"  # the phases require it, regardless of the user's setting
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
