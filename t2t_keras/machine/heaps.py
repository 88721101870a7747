"""Lets the memory of large objects that come and go return to the system, as glibc manages memory."""

import contextlib
import ctypes
import os
import queue
import threading
import weakref
from collections.abc import Callable
from typing import TypeVar

_Made = TypeVar("_Made")

_M_ARENA_MAX = -8  # of malloc.h
_MOST_HEAPS = 256


def one_for_each_thread() -> None:
    """Lets 256 threads have heaps of their own, where glibc allows 8 for each core; to be called before they begin.

    Nothing is done where `MALLOC_ARENA_MAX` says how many, and with another C library.
    """
    if "MALLOC_ARENA_MAX" not in os.environ and (os.cpu_count() or 1) * 8 < _MOST_HEAPS:
        with contextlib.suppress(AttributeError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _MOST_HEAPS)


def made_apart(make: Callable[[], _Made]) -> _Made:
    """What `make` returns, called in a thread that stays until nothing refers to the object any longer.

    glibc takes memory for a thread from a heap that the thread shares with no other, as long as there are few. Objects
    made one after another in the same thread would lie between each other, and when one is gone, few pages of the
    heap would be free as a whole. The object must allow weak references; what `make` raises is raised here.
    """
    outcomes: queue.SimpleQueue[tuple[_Made | None, BaseException | None]] = queue.SimpleQueue()
    threading.Thread(target=_make, args=(make, outcomes), name="made apart", daemon=True).start()
    made, error = outcomes.get()
    if error is not None:
        try:
            raise error
        finally:
            del error  # it holds this frame, which would hold it
    assert made is not None
    return made


def _make(make: Callable[[], _Made], outcomes: "queue.SimpleQueue[tuple[_Made | None, BaseException | None]]") -> None:
    gone: queue.SimpleQueue[None] = queue.SimpleQueue()  # an event must not be set from a finalizer, this may
    try:
        made = make()
        weakref.finalize(made, gone.put, None)
    except BaseException as error:
        outcomes.put((None, error))
        return
    outcomes.put((made, None))
    del made
    gone.get()


def give_back() -> None:
    """Gives back what was freed and glibc keeps; does nothing with another C library, which has no such function."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
