"""How cores are shared out among streams."""

import os

import pytest
import tensorflow as tf

from t2t_keras import streams


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
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)), raising=False)
    assert streams.num_streams() == 1, "nothing was shared out yet"
    streams.share_out_cores(asked)
    assert threads[-1] == threads_each
    assert streams.num_streams() == found


def test_too_late_is_no_error():
    assert float(tf.constant(1.0)) == 1.0  # TensorFlow is in use
    streams.share_out_cores(3)
