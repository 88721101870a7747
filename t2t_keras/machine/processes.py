"""Runs work in child processes, which end when their parent ends for any reason."""

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
    """The interface for running many jobs: calls of one function with each job's number and argument."""

    @property
    def is_parallel(self) -> bool:
        """Whether several jobs run at once, so that each should use only one core."""

    @property
    def here(self) -> "Processes":
        """Processes on this machine, for jobs with large arguments."""

    def run(
        self, function: Callable[..., Any], jobs: Iterable[tuple[int, Any]]
    ) -> Generator[tuple[int, Any], None, None]:
        """Calls a function for each job and yields (number, result) as jobs finish.

        Close the iterator (`contextlib.closing`) to stop early. InputErrors of the function, and all errors of the
        iterator `jobs`, are passed on.

        Args:
            function: called with a job's number and argument; must be importable.
            jobs: (number, argument) of each job; arguments and results must be picklable.
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

        Jobs are taken from the iterator as processes become free, so that few are in memory at once. With a single job
        or a count of 1, jobs run in the caller's process. Processes are spawned, so the function and the caller's main
        module must be importable. Close the iterator (`contextlib.closing`) to stop early.

        Raises:
            InputError: a process was killed. Errors of the function and of the iterator are passed on.
        """
        jobs = iter(jobs)
        first = list(itertools.islice(jobs, 2))
        is_single = len(first) < 2
        jobs = itertools.chain(first, jobs)
        del first  # otherwise the arguments would stay in memory
        if self._count == 1 or is_single:
            yield from ((number, function(number, argument)) for number, argument in jobs)
        else:
            yield from _run_pool(function, jobs, self._count)


class ProcessDiedError(RuntimeError):
    """A process ended without a result; `exit_code` is its status, or minus the signal that killed it."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"the process ended with {exit_code}")
        self.exit_code = exit_code


def call_in_process(function: Callable[..., Any], *arguments: Any, started: Callable[[], object] = lambda: None) -> Any:
    """Calls a function in a child process, whose end frees all its resources, and returns the result.

    Args:
        function: an importable function.
        *arguments: its arguments, which must be picklable, as must its result.
        started: called in this process once the child process has started.

    Raises:
        ProcessDiedError: the process was killed, or the function raised an exception, which is on standard error.
    """
    context = multiprocessing.get_context("spawn")
    life, life_writer = context.Pipe(duplex=False)
    answer, answer_writer = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(life, answer_writer, function, arguments))
    process.start()
    started()
    answer_writer.close()  # so that recv raises EOFError when the process dies
    try:
        return answer.recv()
    except EOFError:
        process.join()
        raise ProcessDiedError(process.exitcode or 0) from None
    finally:
        life_writer.close()  # ends the process if it still runs
        process.join()


def _answer(life: Connection, answer: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    end_with_parent(life)
    answer.send(function(*arguments))


def end_with_parent(pipe: Connection) -> None:
    """Makes a child process end when the parent closes its end of `pipe` or dies, even by SIGKILL.

    Call it in the child process. The process then ignores Ctrl-C, which reaches all processes of a terminal, so that
    only the parent reacts.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def exit_at_end() -> None:
        pipe.poll(None)  # nothing is ever sent, so this returns only when the other end is closed
        os._exit(1)

    threading.Thread(target=exit_at_end, daemon=True).start()


def _run_pool(
    function: Callable[..., Any], jobs: Iterable[tuple[int, Any]], processes: int
) -> Iterator[tuple[int, Any]]:
    context = multiprocessing.get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(processes, context, end_with_parent, (reader,))
    pending: dict[Future, int] = {}
    try:
        for number, argument in jobs:
            pending[pool.submit(function, number, argument)] = number
            if len(pending) > processes:  # one more than the processes, for the next free one
                yield from _collect(pending)
        while pending:
            yield from _collect(pending)
        pool.shutdown()
    except BrokenProcessPool as error:
        raise InputError(
            f"one of {processes} processes was killed, perhaps because memory ran out: use fewer (--processes), or "
            "smaller shards (--shard_pairs)"
        ) from error
    finally:
        writer.close()
        pool.shutdown(cancel_futures=True)
        reader.close()


def _collect(pending: dict[Future, int]) -> Iterator[tuple[int, Any]]:
    """Waits for at least one job, and removes finished jobs from `pending`."""
    for future in wait(pending, return_when=FIRST_COMPLETED).done:
        yield pending.pop(future), future.result()
