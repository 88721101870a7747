"""Waits in an event loop for what threads do, and wakes the loop once for all that a thread did together."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

_Result = TypeVar("_Result")

# What waits for one future, and the future.
_Waiting = tuple[asyncio.Future[None], Future[Any]]

_of_thread = threading.local()


async def arrival(future: Future[_Result]) -> _Result:
    """Waits for the result of a future of another thread, like `asyncio.wrap_future`; to cancel the wait cancels it.

    Futures that are done within `together` wake the loop once.
    """
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()

    def arrived(future: Future[_Result]) -> None:
        held = getattr(_of_thread, "held", None)
        if held is None:
            _wake(loop, [(waiter, future)])
        else:
            held.setdefault(loop, []).append((waiter, future))

    future.add_done_callback(arrived)
    try:
        await waiter
    except asyncio.CancelledError:
        future.cancel()
        raise
    return future.result()


@contextlib.contextmanager
def together() -> Iterator[None]:
    """What is done in the block by this thread is told to the loops that wait for it at the end of the block.

    To wake a loop is a system call, in which the thread leaves the interpreter to the loop: once for each answer of a
    batch, the loop would deal with all of them before the thread could begin its next batch.
    """
    held: dict[asyncio.AbstractEventLoop, list[_Waiting]] = {}
    _of_thread.held = held
    try:
        yield
    finally:
        _of_thread.held = None
        for loop, waiting in held.items():
            _wake(loop, waiting)


def _wake(loop: asyncio.AbstractEventLoop, waiting: list[_Waiting]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(_tell, waiting)


def _tell(waiting: list[_Waiting]) -> None:
    for waiter, future in waiting:
        if waiter.done():
            continue
        if future.cancelled():
            waiter.cancel()
        else:
            waiter.set_result(None)
