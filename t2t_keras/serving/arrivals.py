"""Awaits futures of other threads, and wakes the event loop once for all futures that a thread completes together."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

_Result = TypeVar("_Result")

# A waiter in the event loop, and the future that it waits for.
_Waiting = tuple[asyncio.Future[None], Future[Any]]

_thread_state = threading.local()


async def wait_for(future: Future[_Result]) -> _Result:
    """Waits for the result of another thread's future, like `asyncio.wrap_future`.

    Cancelling the wait cancels the future. Futures completed within one `waking_once` block wake the loop only once.
    """
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()

    def arrived(future: Future[_Result]) -> None:
        queues = getattr(_thread_state, "held", None)
        if queues is None:
            _wake(loop, [(waiter, future)])
        else:
            queues.setdefault(loop, []).append((waiter, future))

    future.add_done_callback(arrived)
    try:
        await waiter
    except asyncio.CancelledError:
        future.cancel()
        raise
    return future.result()


@contextlib.contextmanager
def waking_once() -> Iterator[None]:
    """Delays notifications for futures that this thread completes in the block until the end of the block.

    Waking a loop is a system call that hands the interpreter (the GIL) to the loop's thread. If this thread woke the
    loop for each response of a batch, the loop would process all of them before the thread could start its next batch.
    """
    queues: dict[asyncio.AbstractEventLoop, list[_Waiting]] = {}
    _thread_state.held = queues
    try:
        yield
    finally:
        _thread_state.held = None
        for loop, waiters in queues.items():
            _wake(loop, waiters)


def _wake(loop: asyncio.AbstractEventLoop, waiters: list[_Waiting]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(_complete, waiters)


def _complete(waiters: list[_Waiting]) -> None:
    for waiter, future in waiters:
        if waiter.done():
            continue
        if future.cancelled():
            waiter.cancel()
        else:
            waiter.set_result(None)
