"""A function that is traced once and called in graphs, compared with the function itself."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.training.traced import TracedFunction

MATRIX = tf.TensorSpec([None, 3], tf.float32)


def polynomial(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
    return tf.reduce_sum(x), [x * y + 1.0, tf.matmul(x, y, transpose_b=True)]


@pytest.mark.parametrize("fewer_rewrites", [False, True])
def test_calls_equal_the_function(fewer_rewrites):
    traced = TracedFunction(polynomial, [MATRIX, MATRIX], fewer_rewrites=fewer_rewrites)
    x, y = tf.reshape(tf.range(6.0), [2, 3]), tf.ones([2, 3])

    @tf.function
    def twice() -> list:
        return [traced(x, y), traced(y, x)]

    for actual, arguments in zip(twice(), [(x, y), (y, x)], strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, actual, polynomial(*arguments))
        tf.nest.map_structure(np.testing.assert_array_equal, traced(*arguments), polynomial(*arguments))


def test_shapes_are_known():
    traced = TracedFunction(polynomial, [MATRIX, MATRIX], fewer_rewrites=True)

    @tf.function(input_signature=[tf.TensorSpec([2, 3])])
    def function(x: tf.Tensor) -> tf.Tensor:
        total, (elements, products) = traced(x, x)
        assert total.shape.rank == 0
        assert elements.shape.as_list() == [None, 3]
        assert products.shape.as_list() == [None, None]
        return products

    assert function(tf.ones([2, 3])).shape == (2, 2)


def test_it_is_traced_once_and_copied_nowhere():
    calls = []
    traced = TracedFunction(lambda x: calls.append(1) or x + 1.0, [MATRIX], fewer_rewrites=True)
    function = tf.function(lambda x: traced(traced(traced(x)))).get_concrete_function(MATRIX)
    graph = function.graph.as_graph_def()
    assert len(calls) == 1
    assert len(graph.library.function) == 1
    assert [node.op for node in graph.node].count("PartitionedCall") == 3
    assert "AddV2" not in [node.op for node in graph.node]


def test_captured_and_changed_variables():
    """Networks do neither; for other functions, the result equals that of a `tf.function`."""
    factor, count = tf.constant(2.0), tf.Variable(0)

    def function(x: tf.Tensor) -> tf.Tensor:
        count.assign_add(1)
        return factor * x

    traced = TracedFunction(function, [MATRIX], fewer_rewrites=True)
    tripled = tf.function(lambda x: traced(x) + x)
    np.testing.assert_array_equal(tripled(tf.ones([1, 3])), [[3.0] * 3])
    tripled(tf.ones([1, 3]))
    assert int(count) == 2
