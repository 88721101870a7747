"""Moves long work from the event loop to threads."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

# For a body of this size, handing the work to a thread takes about as long as the work.
_LARGE_BYTES = 32 << 10

_Result = TypeVar("_Result")


async def run(
    num_bytes: int,
    function: Callable[..., _Result],
    *arguments: object,
    give_up: Callable[[_Result], object] = lambda result: None,
) -> _Result:
    """Returns `function(*arguments)`, called in a thread if it reads or writes many bytes, `num_bytes`.

    A thread cannot be stopped: if nobody waits for its result any more, `give_up` is called with it.
    """
    if num_bytes <= _LARGE_BYTES:
        return function(*arguments)
    work = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        work.add_done_callback(lambda done: done.cancelled() or done.exception() or give_up(done.result()))
        raise
