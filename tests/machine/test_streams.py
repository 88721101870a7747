"""How cores are shared out among streams."""

import threading

import pytest
import tensorflow as tf

from t2t_keras.machine import streams


@pytest.fixture
def threads(monkeypatch):
    """What was set last, in place of TensorFlow's own setting, which is fixed once it runs."""
    setting = [0]
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", lambda n: setting.append(n))
    monkeypatch.setattr(tf.config.threading, "get_intra_op_parallelism_threads", lambda: setting[-1])
    return setting


@pytest.mark.parametrize(
    ("cores", "asked", "threads_each", "found"),
    [(8, 2, 4, 2), (9, 2, 4, 2), (2, 2, 1, 2), (1, 2, 1, 1), (6, None, 1, 6), (1, None, 1, 1)],
)
def test_every_stream_has_its_share(threads, monkeypatch, cores, asked, threads_each, found):
    monkeypatch.setattr(streams, "num_cores", lambda: cores)
    assert streams.num_streams() == 1, "nothing was shared out yet"
    streams.share_out_cores(asked)
    assert threads[-1] == threads_each
    assert streams.num_streams() == found


@pytest.mark.parametrize("cores", [1, 3])
def test_side_by_side_keeps_the_order(threads, monkeypatch, cores):
    monkeypatch.setattr(streams, "num_cores", lambda: cores)
    streams.share_out_cores()
    meeting = threading.Barrier(cores)

    def squared(number):
        meeting.wait(timeout=300)  # nobody comes alone
        return number**2

    assert list(streams.map_in_parallel(squared, range(6))) == [0, 1, 4, 9, 16, 25]
    assert list(streams.map_in_parallel(squared, [])) == []


def test_what_has_not_begun_is_left_out_once_closed(threads):
    begun, may_end = [], threading.Event()

    def slow(number):
        begun.append(number)
        if number:
            may_end.wait(timeout=300)

    results = streams.map_in_parallel(slow, range(1000))
    next(results)
    threading.Timer(0.5, may_end.set).start()  # once it is closing
    results.close()
    assert len(begun) < 1000


def test_a_failure_comes_in_its_turn():
    results = streams.map_in_parallel(lambda number: 1 // number, range(-2, 3))
    assert [next(results), next(results)] == [-1, -1]
    with pytest.raises(ZeroDivisionError):
        next(results)
