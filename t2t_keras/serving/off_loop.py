"""Keeps what takes long away from the event loop, which goes on with other requests meanwhile."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

# Handing work to a thread takes about as long as doing it for a body of this size.
_LARGE_BYTES = 32 << 10

_Result = TypeVar("_Result")


async def run(num_bytes: int, function: Callable[..., _Result], *arguments: object) -> _Result:
    """Calls a function, in a thread if there is much for it to do.

    Args:
        num_bytes: how much it has to read or write.
        function: what to call.
        *arguments: what it is called with.

    Returns:
        What it returns.
    """
    if num_bytes <= _LARGE_BYTES:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)
