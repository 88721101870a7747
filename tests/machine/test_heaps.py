"""Objects that are made in threads of their own, and memory that goes back to the system."""

import gc
import threading
import traceback
import weakref
from types import SimpleNamespace

import pytest

from t2t_keras.machine import heaps
from tests.waiting import wait_until


class Made:
    def __init__(self):
        self.thread = threading.current_thread()


@pytest.fixture
def without_collector():
    gc.disable()
    yield
    gc.enable()


def test_the_thread_stays_as_long_as_the_object(without_collector):
    first, second = heaps.made_apart(Made), heaps.made_apart(Made)
    threads = [first.thread, second.thread]
    assert len({threading.current_thread(), *threads}) == 3
    del first
    wait_until(lambda: not threads[0].is_alive())
    assert threads[1].is_alive()
    gone = weakref.ref(second)
    del second
    assert gone() is None
    wait_until(lambda: not threads[1].is_alive())


def test_an_error_is_raised_and_nothing_stays(without_collector):
    class Large(ValueError):
        pass

    def fail():
        raise Large("damaged")

    before = threading.active_count()
    with pytest.raises(Large, match="damaged") as caught:
        heaps.made_apart(fail)
    assert any(frame.name == "fail" for frame in traceback.extract_tb(caught.value.__traceback__))
    gone = weakref.ref(caught.value)
    del caught
    assert gone() is None
    wait_until(lambda: threading.active_count() == before)


def test_what_cannot_be_followed_is_refused():
    with pytest.raises(TypeError, match="weak reference"):
        heaps.made_apart(lambda: 5)


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(heaps.ctypes, "CDLL", lambda name: SimpleNamespace())
    heaps.give_back()
