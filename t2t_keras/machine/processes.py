"""Runs work in child processes, which end when their parent ends, however that happens."""

import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Any, Protocol

from t2t_keras.errors import InputError


class Workers(Protocol):
    """What runs jobs: a function of a job's number and argument, for many jobs."""

    @property
    def is_parallel(self) -> bool:
        """Whether several jobs run at once, so that each had better keep to one core."""

    @property
    def here(self) -> "Processes":
        """Processes of this machine, for jobs whose arguments are large."""

    def run(
        self, function: Callable[..., Any], jobs: Iterable[tuple[int, Any]]
    ) -> Generator[tuple[int, Any], None, None]:
        """Calls a function for each job (number, argument) and yields (number, result) as jobs finish.

        The function must be importable, arguments and results picklable. Close the iterator (`contextlib.closing`) to
        stop early. An InputError of the function, and any error of the iterator of jobs, passes through.
        """


class Processes:
    """Runs jobs in up to `count` child processes."""

    def __init__(self, count: int) -> None:
        self._count = count

    @property
    def is_parallel(self) -> bool:
        return self._count > 1

    @property
    def here(self) -> "Processes":
        return self

    def run(
        self, function: Callable[..., Any], jobs: Iterable[tuple[int, Any]]
    ) -> Generator[tuple[int, Any], None, None]:
        """Calls a function for each job and yields (number, result) as jobs finish.

        Jobs are drawn as processes become free, so that few are in memory at once. A single job, or a single process,
        runs in the caller's process. Close the iterator (`contextlib.closing`) to stop early. Processes are spawned, so
        that the function and the caller's main module must be importable. An InputError says that a process was killed;
        errors of the function and of the iterator of jobs pass through.
        """
        jobs = iter(jobs)
        first = list(itertools.islice(jobs, 2))
        is_single = len(first) < 2
        jobs = itertools.chain(first, jobs)
        del first  # or its arguments would stay in memory
        if self._count == 1 or is_single:
            yield from ((number, function(number, argument)) for number, argument in jobs)
        else:
            yield from _pooled(function, jobs, self._count)


class ProcessDiedError(RuntimeError):
    """A process ended without a result; `exit_code` is its status, or minus the signal that killed it."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"the process ended with {exit_code}")
        self.exit_code = exit_code


def call_apart(function: Callable[..., Any], *arguments: Any, started: Callable[[], object] = lambda: None) -> Any:
    """Calls an importable function in a child process, whose end frees all its resources, and returns the result.

    The function's arguments and result must be picklable. `started` is called here once the process is there. A
    ProcessDiedError says that the process was killed, or that the function raised an error, which is on standard error.
    """
    context = multiprocessing.get_context("spawn")
    life, life_here = context.Pipe(duplex=False)
    answer, answer_there = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(life, answer_there, function, arguments))
    process.start()
    started()
    answer_there.close()  # so that recv raises EOFError when the process dies
    try:
        return answer.recv()
    except EOFError:
        process.join()
        raise ProcessDiedError(process.exitcode or 0) from None
    finally:
        life_here.close()  # ends the process if it still runs
        process.join()


def _answer(life: Connection, answer: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    end_with_parent(life)
    answer.send(function(*arguments))


def end_with_parent(pipe: Connection) -> None:
    """Called in a child: ends it when the parent closes its end of the pipe or dies, even by SIGKILL.

    Ignores Ctrl-C, which reaches all processes of a terminal at once; the parent decides what to do.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def exit_at_end() -> None:
        pipe.poll(None)  # nothing is ever sent, so this returns when the other end is closed
        os._exit(1)

    threading.Thread(target=exit_at_end, daemon=True).start()


def _pooled(function: Callable[..., Any], jobs: Iterable[tuple[int, Any]], processes: int) -> Iterator[tuple[int, Any]]:
    context = multiprocessing.get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(processes, context, end_with_parent, (reader,))
    pending: dict[Future, int] = {}
    try:
        for number, argument in jobs:
            pending[pool.submit(function, number, argument)] = number
            if len(pending) > processes:  # one job waits for the first free process
                yield from _finished(pending)
        while pending:
            yield from _finished(pending)
        pool.shutdown()
    except BrokenProcessPool as error:
        raise InputError(
            f"one of {processes} processes was killed, for lack of memory perhaps: take fewer, or less work for each"
        ) from error
    finally:
        writer.close()
        pool.shutdown(cancel_futures=True)
        reader.close()


def _finished(pending: dict[Future, int]) -> Iterator[tuple[int, Any]]:
    """Waits for at least one job and removes those that are done from `pending`."""
    for future in wait(pending, return_when=FIRST_COMPLETED).done:
        yield pending.pop(future), future.result()
