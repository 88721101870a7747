"""Divides the cores of a CPU among concurrent streams of work.

Operations of a small model are too short to profit from many threads. Two halves of the work that run in parallel, each
on half of the cores, take less time than the same halves in sequence on all cores.
"""

import concurrent.futures
import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

import tensorflow as tf

from t2t_keras.machine.processor import num_cores

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def share_out_cores(streams: int | None = None) -> None:
    """Limits the threads of each TensorFlow operation to one stream's share of the cores.

    Call it before TensorFlow runs anything. Later calls have no effect, and streams then compete for the same threads.

    Args:
        streams: number of streams; None means one per core.
    """
    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(max(num_cores() // (streams or num_cores()), 1))


def num_streams() -> int:
    """Returns the number of streams among which the cores are divided; 1 if they are not divided."""
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    return max(num_cores() // threads, 1) if threads else 1


def threads_per_stream() -> int:
    """Returns the number of threads that an operation of one stream may use."""
    return max(num_cores() // num_streams(), 1)


def map_in_parallel(function: Callable[[_Item], _Result], items: Sequence[_Item]) -> Generator[_Result, None, None]:
    """Calls a function for each item in `num_streams` threads, and yields the results in order.

    A single item is processed in the calling thread. An error of the function is raised in place of its result. After
    an error, or if the generator is closed, items that have not started are skipped.
    """
    if len(items) < 2:
        yield from map(function, items)
        return
    with concurrent.futures.ThreadPoolExecutor(num_streams()) as executor:
        try:
            yield from executor.map(function, items)
        finally:
            executor.shutdown(cancel_futures=True)  # so that an interrupt does not wait for items that have not started
