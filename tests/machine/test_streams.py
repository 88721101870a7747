"""The distribution of cores among streams."""

import threading

import pytest
import tensorflow as tf

from t2t_keras.machine import streams


@pytest.fixture
def threads(monkeypatch):
    """Records TensorFlow's number of threads, which cannot be changed after TensorFlow has run."""
    setting = [0]
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", lambda n: setting.append(n))
    monkeypatch.setattr(tf.config.threading, "get_intra_op_parallelism_threads", lambda: setting[-1])
    return setting


@pytest.mark.parametrize(
    ("cores", "num_requested", "threads_each", "num_streams"),
    [(8, 2, 4, 2), (9, 2, 4, 2), (2, 2, 1, 2), (1, 2, 1, 1), (6, None, 1, 6), (1, None, 1, 1)],
)
def test_streams_share_the_cores(threads, monkeypatch, cores, num_requested, threads_each, num_streams):
    monkeypatch.setattr(streams, "num_cores", lambda: cores)
    assert streams.num_streams() == 1, "cores are only distributed on request"
    streams.share_out_cores(num_requested)
    assert threads[-1] == threads_each
    assert streams.num_streams() == num_streams


@pytest.mark.parametrize("cores", [1, 3])
def test_side_by_side_preserves_the_order(threads, monkeypatch, cores):
    monkeypatch.setattr(streams, "num_cores", lambda: cores)
    streams.share_out_cores()
    meeting = threading.Barrier(cores)

    def squared(number):
        meeting.wait(timeout=300)  # waits until all streams work
        return number**2

    assert list(streams.map_in_parallel(squared, range(6))) == [0, 1, 4, 9, 16, 25]
    assert list(streams.map_in_parallel(squared, [])) == []


def test_closing_skips_jobs_that_have_not_started(threads):
    started, may_end = [], threading.Event()

    def record_and_wait(number):
        started.append(number)
        if number:
            may_end.wait(timeout=300)

    results = streams.map_in_parallel(record_and_wait, range(1000))
    next(results)
    threading.Timer(0.5, may_end.set).start()  # after closing has started
    results.close()
    assert len(started) < 1000


def test_an_error_is_raised_in_its_turn():
    results = streams.map_in_parallel(lambda number: 1 // number, range(-2, 3))
    assert [next(results), next(results)] == [-1, -1]
    with pytest.raises(ZeroDivisionError):
        next(results)
