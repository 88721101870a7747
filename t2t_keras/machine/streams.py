"""Divides the cores of a CPU among concurrent streams of work.

Operations of a small model are too short to be worth waking other threads: two halves of the work, each on half of the
cores, take less time than one after the other on all cores.
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
    """Limits operations to one of `streams` equal shares of the cores (None: one stream for each core).

    Call it before TensorFlow runs anything: afterwards its threads are fixed, and streams only compete for them.
    """
    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(max(num_cores() // (streams or num_cores()), 1))


def num_streams() -> int:
    """The number of streams that the cores were divided among; 1 if they were not."""
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    return max(num_cores() // threads, 1) if threads else 1


def threads_per_stream() -> int:
    """The number of threads that one stream's operations may use."""
    return max(num_cores() // num_streams(), 1)


def side_by_side(function: Callable[[_Item], _Result], items: Sequence[_Item]) -> Generator[_Result, None, None]:
    """Yields a function's result for each item in order, computed in `num_streams` threads; a single item in this one.

    An error of the function is raised when its result is due. Then, or if the generator is closed, items that have not
    begun are left out.
    """
    if len(items) < 2:
        yield from map(function, items)
        return
    with concurrent.futures.ThreadPoolExecutor(num_streams()) as executor:
        try:
            yield from executor.map(function, items)
        finally:
            executor.shutdown(cancel_futures=True)  # an interrupt does not wait for items that have not begun
