"""Computes the rows of a request in batches of similar length, in the graph, to bound its memory."""

from collections.abc import Callable, Sequence

import tensorflow as tf


def in_batches(
    lengths: tf.Tensor,
    tokens_per_batch: int,
    compute: Callable[[tf.Tensor], Sequence[tf.Tensor]],
    results: Sequence[tf.TensorSpec],
) -> list[tf.Tensor]:
    """Computes rows in the batches of `t2t_keras.search.batches.length_batches`; the results keep the rows' order.

    Args:
        lengths: int32 [rows].
        tokens_per_batch: limit of a batch's number of rows times its longest row; a batch of one row may exceed it.
        compute: maps the indices of a batch's rows, int32 [count], to tensors [count, ...].
        results: specs of these tensors. A size of None may differ between requests, but not between the batches of one
            request.
    """
    order = tf.argsort(lengths, direction="DESCENDING", stable=True)
    longest_first = tf.gather(lengths, order)

    def body(done: tf.Tensor, *outputs: tf.Tensor) -> tuple[tf.Tensor, ...]:
        count = tf.maximum(1, tokens_per_batch // tf.maximum(1, longest_first[done]))
        rows = order[done : done + count]
        pairs = zip(outputs, compute(rows), strict=True)
        return done + tf.size(rows), *(_concatenate(old, new) for old, new in pairs)

    start = [tf.zeros([size or 0 for size in spec.shape], spec.dtype) for spec in results]
    shapes = (tf.TensorShape([]), *(spec.shape for spec in results))
    loop = (tf.constant(0), *start)
    _, *outputs = tf.while_loop(lambda done, *_: done < tf.size(lengths), body, loop, shape_invariants=shapes)
    places = tf.math.invert_permutation(order)
    return [tf.gather(values, places) for values in outputs]


def widened(values: tf.Tensor, sizes: Sequence[int | tf.Tensor]) -> tf.Tensor:
    """Pads the last axes of values with zeros at the end, to the given sizes."""
    rank = values.shape.rank - len(sizes)
    missing = [size - tf.shape(values)[rank + axis] for axis, size in enumerate(sizes)]
    return tf.pad(values, [[0, 0]] * rank + [[0, size] for size in missing])


def _concatenate(old: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
    """Concatenates rows; an empty `old` takes its other sizes from `new`."""
    old = tf.reshape(old, tf.concat([tf.shape(old)[:1], tf.shape(new)[1:]], axis=0))
    return tf.concat([old, new], axis=0)
