"""Stopping running TensorFlow functions, which relies on private names of TensorFlow."""

import threading
from concurrent.futures import Future

import pytest
import tensorflow as tf
from tensorflow.python.eager import cancellation, context

from t2t_keras.serving.cancelling import Cancellation


@tf.function(input_signature=[tf.TensorSpec([], tf.int64)])
def count_to(limit):
    return tf.while_loop(lambda number: number < limit, lambda number: [number + 1], [tf.zeros([], tf.int64)])[0]


ENDLESS = tf.constant(10**15, tf.int64)


@pytest.fixture(scope="module")
def counting_function():
    return count_to.get_concrete_function()


def start_thread(function, limit):
    """Starts a call in a thread, and returns its cancellation and the future of its outcome."""
    stop, entered, outcome = Cancellation(), threading.Event(), Future()

    def call():
        try:
            with stop:
                entered.set()
                outcome.set_result(int(function(limit)))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    assert entered.wait(300)
    return stop, outcome


def test_private_names_of_tensorflow_exist():
    assert {"CancellationManager", "context"} <= set(dir(cancellation))
    assert context.cancellation is cancellation


def test_calls_are_stopped_independently(counting_function):
    calls = [start_thread(counting_function, ENDLESS) for _ in range(3)]
    for number, (stop, outcome) in enumerate(calls):
        assert not any(later.done() for _, later in calls[number:])
        stop.cancel()
        assert isinstance(outcome.exception(300), tf.errors.CancelledError)


def test_calls_after_cancellation_do_not_start_and_other_calls_run(counting_function):
    stop = Cancellation()
    stop.cancel()
    with pytest.raises(tf.errors.CancelledError), stop:
        counting_function(ENDLESS)
    assert int(counting_function(tf.constant(3, tf.int64))) == 3
