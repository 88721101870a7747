"""Moves long-running work from the event loop to threads."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

# For a body of this size, handing the work to a thread takes about as long as the work itself.
_LARGE_BYTES = 32 << 10

_Result = TypeVar("_Result")


async def run(
    num_bytes: int,
    function: Callable[..., _Result],
    *arguments: object,
    give_up: Callable[[_Result], object] = lambda result: None,
) -> _Result:
    """Returns `function(*arguments)`, which is called in a thread if it processes more than 32 KiB.

    Args:
        num_bytes: number of bytes that the function reads or writes.
        function: the function to call.
        *arguments: arguments of the function.
        give_up: called with the result if the wait was cancelled, because a function in a thread cannot be stopped.
    """
    if num_bytes <= _LARGE_BYTES:
        return function(*arguments)
    work = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        work.add_done_callback(lambda done: done.cancelled() or done.exception() or give_up(done.result()))
        raise
