"""How the cores of a CPU are shared out among streams of work that run side by side.

Operations of a small model are too short to be worth waking other threads for.
Two halves of the work on half of the cores each take less time than one after
the other on all of them.
"""

import concurrent.futures
import contextlib
import os
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

import tensorflow as tf

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def share_out_cores(streams: int | None = None) -> None:
    """Gives every operation from now on one stream's share of the cores; call it before anything of TensorFlow runs.

    Once TensorFlow runs its threads are fixed: then streams compete for them,
    which is slower and nothing worse.

    Args:
        streams: how many there will be; None means one a core.
    """
    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(max(_cores() // (streams or _cores()), 1))


def num_streams() -> int:
    """How many streams the cores were shared out among; 1 if they were not."""
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    return max(_cores() // threads, 1) if threads else 1


def threads_per_stream() -> int:
    """Threads that one stream's operations may use."""
    return max(_cores() // num_streams(), 1)


def side_by_side(function: Callable[[_Item], _Result], items: Sequence[_Item]) -> Generator[_Result, None, None]:
    """What a function makes of each item, in as many streams as there are; of one item alone, in this thread.

    Args:
        function: is called in several threads at once.
        items: its arguments.

    Returns:
        The results in the order of the items; close it to leave out what has not begun.

    Raises:
        Exception: what the function raises, once its turn has come; what has not begun is left out.
    """
    if len(items) < 2:
        yield from map(function, items)
        return
    with concurrent.futures.ThreadPoolExecutor(num_streams()) as executor:
        try:
            yield from executor.map(function, items)
        finally:
            executor.shutdown(cancel_futures=True)  # an interrupt need not wait for what has not begun


def _cores() -> int:
    """Cores that this process may use, which in a container can be fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
