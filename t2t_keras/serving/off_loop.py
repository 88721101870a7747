"""Moves long work from the event loop to threads."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

# For a body of this size, handing the work to a thread takes about as long as the work.
_LARGE_BYTES = 32 << 10

_Result = TypeVar("_Result")


async def run(num_bytes: int, function: Callable[..., _Result], *arguments: object) -> _Result:
    """Returns `function(*arguments)`, called in a thread if it reads or writes many bytes, `num_bytes`."""
    if num_bytes <= _LARGE_BYTES:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)
