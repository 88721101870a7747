"""Controls glibc's heaps, so that the memory of large short-lived objects returns to the system."""

import contextlib
import ctypes
import os
import queue
import threading
import weakref
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

_M_ARENA_MAX = -8  # from malloc.h
_MAX_HEAPS = 256


def one_for_each_thread() -> None:
    """Raises glibc's limit of heaps (arenas) from 8 per core to at least 256, so that each thread gets its own.

    Call it before the threads start. It does nothing if `MALLOC_ARENA_MAX` is set, or with a different C library.
    """
    if "MALLOC_ARENA_MAX" not in os.environ and (os.cpu_count() or 1) * 8 < _MAX_HEAPS:
        with contextlib.suppress(AttributeError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _MAX_HEAPS)


def make_in_new_thread(make: Callable[[], _T]) -> _T:
    """Calls `make` in a separate thread, which lives as long as the returned object.

    glibc allocates a thread's memory from a heap that no other thread uses, as long as there are few threads. If
    several objects were created in one thread, their memory would be interleaved, and deleting one of them would free
    few whole pages.

    Args:
        make: creates the object, which must support weak references. Its exceptions are raised in the caller.

    Returns:
        The result of `make`.
    """
    outcomes: queue.SimpleQueue[tuple[_T | None, BaseException | None]] = queue.SimpleQueue()
    threading.Thread(target=_make, args=(make, outcomes), name="made apart", daemon=True).start()
    result, error = outcomes.get()
    if error is not None:
        try:
            raise error
        finally:
            del error  # breaks the reference cycle between the error and this frame
    assert result is not None
    return result


def _make(make: Callable[[], _T], outcomes: "queue.SimpleQueue[tuple[_T | None, BaseException | None]]") -> None:
    release: queue.SimpleQueue[None] = queue.SimpleQueue()  # unlike an Event, safe to use in a finalizer
    try:
        result = make()
        weakref.finalize(result, release.put, None)
    except BaseException as error:
        outcomes.put((None, error))
        return
    outcomes.put((result, None))
    del result
    release.get()


def give_back() -> None:
    """Releases freed memory from glibc's caches to the system; does nothing with a different C library."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
