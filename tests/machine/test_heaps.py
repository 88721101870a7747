"""Objects that are created in separate threads, and memory that returns to the system."""

import ctypes
import gc
import os
import pathlib
import subprocess
import sys
import threading
import traceback
import weakref

import pytest

from t2t_keras.machine import heaps
from tests.waiting import wait_until

ROOT = pathlib.Path(__file__).parents[2]


class Freed:
    def __init__(self):
        self.thread = threading.current_thread()


@pytest.fixture
def without_collector():
    gc.disable()
    yield
    gc.enable()


def test_the_thread_lives_as_long_as_the_object(without_collector):
    first, second = heaps.make_in_new_thread(Freed), heaps.make_in_new_thread(Freed)
    threads = [first.thread, second.thread]
    assert len({threading.current_thread(), *threads}) == 3
    del first
    wait_until(lambda: not threads[0].is_alive())
    assert threads[1].is_alive()
    freed = weakref.ref(second)
    del second
    assert freed() is None
    wait_until(lambda: not threads[1].is_alive())


def test_an_error_is_raised_and_its_memory_is_freed(without_collector):
    class Large(ValueError):
        pass

    def fail():
        raise Large("damaged")

    before = threading.active_count()
    with pytest.raises(Large, match="damaged") as caught:
        heaps.make_in_new_thread(fail)
    assert any(frame.name == "fail" for frame in traceback.extract_tb(caught.value.__traceback__))
    freed = weakref.ref(caught.value)
    del caught
    assert freed() is None
    wait_until(lambda: threading.active_count() == before)


# Prints the number of heaps while this many threads, which have allocated memory, are alive.
COUNT = """
import ctypes, sys, threading
from t2t_keras.machine import heaps
heaps.one_for_each_thread()
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
all_have = threading.Barrier(int(sys.argv[1]) + 1)
def take():
    libc.malloc(100_000)
    all_have.wait()
    all_have.wait()
for _ in range(int(sys.argv[1])):
    threading.Thread(target=take).start()
all_have.wait()
libc.malloc_info(0, libc.fopen(b"/dev/stdout", b"w"))
libc.fflush(None)
all_have.wait()
"""


@pytest.mark.parametrize("limit", [None, "5"])
def test_each_thread_has_a_heap_unless_the_user_sets_a_limit(limit):
    if not hasattr(ctypes.CDLL(None), "malloc_info"):
        pytest.skip("another C library than glibc")
    threads = min(8 * os.cpu_count() + 20, 250)
    environment = {**os.environ, "MALLOC_ARENA_MAX": limit or ""}
    if not limit:
        del environment["MALLOC_ARENA_MAX"]
    command = [sys.executable, "-c", COUNT, str(threads)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=ROOT)
    count = done.stdout.count("<heap nr=")
    assert count == int(limit) if limit else count > threads
