"""Functions of TensorFlow are stopped while they run, each alone; it tells when TensorFlow's private names change."""

import threading
from concurrent.futures import Future

import pytest
import tensorflow as tf
from tensorflow.python.eager import cancellation, context

from t2t_keras.serving.cancelling import Cancellation


@tf.function(input_signature=[tf.TensorSpec([], tf.int64)])
def count(limit):
    return tf.while_loop(lambda number: number < limit, lambda number: [number + 1], [tf.zeros([], tf.int64)])[0]


ENDLESS = tf.constant(10**15, tf.int64)


@pytest.fixture(scope="module")
def counting():
    return count.get_concrete_function()


def in_a_thread(function, limit):
    """Begins a call in a thread of its own; returns what stops it, and the future of its outcome."""
    stopping, entered, outcome = Cancellation(), threading.Event(), Future()

    def call():
        try:
            with stopping:
                entered.set()
                outcome.set_result(int(function(limit)))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    assert entered.wait(300)
    return stopping, outcome


def test_tensorflow_asks_for_the_call_that_is_to_be_stopped():
    assert {"CancellationManager", "context"} <= set(dir(cancellation))
    assert context.cancellation is cancellation


def test_each_call_is_stopped_alone(counting):
    calls = [in_a_thread(counting, ENDLESS) for _ in range(3)]
    for number, (stopping, outcome) in enumerate(calls):
        assert not any(later.done() for _, later in calls[number:])
        stopping.cancel()
        assert isinstance(outcome.exception(300), tf.errors.CancelledError)


def test_a_call_after_the_stop_does_not_begin_and_one_outside_is_not_touched(counting):
    stopping = Cancellation()
    stopping.cancel()
    with pytest.raises(tf.errors.CancelledError), stopping:
        counting(ENDLESS)
    assert int(counting(tf.constant(3, tf.int64))) == 3
