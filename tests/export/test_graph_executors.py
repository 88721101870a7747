"""One thread runs a stage for a few rows, gives the same, and can be stopped."""

import threading

import pytest
import tensorflow as tf

from t2t_keras.export.graph_executors import FEW, by_one_thread_if_few
from t2t_keras.serving.cancelling import Cancellation

_ROWS = tf.TensorSpec([None], tf.int32)


def in_graph(stage):
    """A function that runs a stage as the graph of an export does."""

    @tf.function(input_signature=[_ROWS], autograph=False)
    def run(values):
        return by_one_thread_if_few(stage, tf.size(values), values)

    return run


@tf.function(input_signature=[_ROWS], autograph=False)
def halvings(values):
    """How often each number can be halved until it is 0."""

    def body(values, counts):
        return values // 2, counts + tf.cast(values > 0, tf.int32)

    return tf.while_loop(lambda values, _: tf.reduce_any(values > 0), body, (values, tf.zeros_like(values)))[1]


@pytest.mark.parametrize("rows", [0, 1, FEW, FEW + 1])
def test_either_way_gives_the_same(rows):
    values = tf.range(rows) * 5
    assert in_graph(halvings)(values).numpy().tolist() == halvings(values).numpy().tolist()


def test_both_ways_call_one_function():
    library = in_graph(halvings).get_concrete_function().graph.as_graph_def().library.function
    calls = [node for function in library for node in function.node_def if node.op.endswith("PartitionedCall")]
    assert len({node.attr["f"].func.name for node in calls}) == 1
    assert {node.attr["executor_type"].s for node in calls} == {b"", b"SINGLE_THREADED_EXECUTOR"}


def test_it_can_be_stopped():
    begun, cancellation, errors = threading.Event(), Cancellation(), []

    def step(value):
        begun.set()
        return value

    @tf.function(input_signature=[_ROWS], autograph=False)
    def endless(values):
        body = lambda value: tf.ensure_shape(tf.numpy_function(step, [value], tf.int32), [])  # noqa: E731
        return tf.while_loop(lambda value: value == 0, body, [tf.size(values) - 1])[0]

    run = in_graph(endless)

    def call():
        with cancellation:
            try:
                run(tf.constant([3]))
            except tf.errors.CancelledError as error:
                errors.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    assert begun.wait(60)
    cancellation.cancel()
    thread.join(60)
    assert errors
