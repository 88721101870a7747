"""Work in processes of its own, all of which end with the one that asked for it, however that ends."""

import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Any

from t2t_keras.errors import InputError


def run_jobs(
    function: Callable[..., Any], jobs: Iterable[tuple[int, Any]], processes: int
) -> Iterator[tuple[int, Any]]:
    """Calls a function once for each job, several at a time.

    Jobs are drawn as processes become free, so that few are in memory at once.
    A single job, or a single process, is run in the caller's own process. Close
    the iterator (`contextlib.closing`) to end the processes before all is done.

    Args:
        function: takes a job's number and its argument, and can be imported.
        jobs: numbers and arguments.
        processes: how many work at once; they are started anew, so the caller's main module must be importable.

    Yields:
        A job's number and its result, in the order in which jobs are done.

    Raises:
        InputError: a process was killed; or what the function or the iterator of jobs raises.
    """
    jobs = iter(jobs)
    first = list(itertools.islice(jobs, 2))
    is_alone = processes == 1 or len(first) < 2
    jobs = itertools.chain(first, jobs)
    if is_alone:
        yield from ((number, function(number, argument)) for number, argument in jobs)
    else:
        yield from _pooled(function, jobs, processes)


class ProcessDiedError(RuntimeError):
    """A process ended before it had a result.

    Attributes:
        exit_code: its exit status; of a signal that killed it, the negative number.
    """

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"the process ended with {exit_code}")
        self.exit_code = exit_code


def call_apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function in a process of its own, which takes all that it used with it.

    Args:
        function: can be imported.
        *arguments: of it; they and its result can be pickled.

    Returns:
        Its result.

    Raises:
        ProcessDiedError: there is none, because the process was killed, or raised what it wrote to its standard error.
    """
    context = multiprocessing.get_context("spawn")
    life, life_here = context.Pipe(duplex=False)
    answer, answer_there = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(life, answer_there, function, arguments))
    process.start()
    answer_there.close()  # so that its end is seen here when the process dies
    try:
        return answer.recv()
    except EOFError:
        process.join()
        raise ProcessDiedError(process.exitcode or 0) from None
    finally:
        life_here.close()  # ends it, if it has not ended
        process.join()


def _answer(life: Connection, answer: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    end_with_parent(life)
    answer.send(function(*arguments))


def end_with_parent(pipe: Connection) -> None:
    """Called in a child: it ends when the parent closes the other end of the pipe or dies, even of SIGKILL.

    Ctrl-C reaches all processes of a terminal at once; it is left to the parent what to make of it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_at_end, args=(pipe,), daemon=True).start()


def _exit_at_end(pipe: Connection) -> None:
    pipe.poll(None)  # nothing is ever sent, so this waits for the end
    os._exit(1)


def _pooled(function: Callable[..., Any], jobs: Iterable[tuple[int, Any]], processes: int) -> Iterator[tuple[int, Any]]:
    context = multiprocessing.get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(processes, context, end_with_parent, (reader,))
    pending: dict[Future, int] = {}
    try:
        for number, argument in jobs:
            pending[pool.submit(function, number, argument)] = number
            if len(pending) > processes:  # one waits for whoever is free first
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
    """Waits for a job at least, and takes those that are done out of `pending`."""
    for future in wait(pending, return_when=FIRST_COMPLETED).done:
        yield pending.pop(future), future.result()
