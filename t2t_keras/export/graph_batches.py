"""Work on many rows in batches of similar length, in the graph: memory stays bounded whatever a request holds."""

from collections.abc import Callable, Sequence

import tensorflow as tf


def in_batches(
    lengths: tf.Tensor,
    tokens_per_batch: int,
    compute: Callable[[tf.Tensor], Sequence[tf.Tensor]],
    results: Sequence[tf.TensorSpec],
) -> list[tf.Tensor]:
    """Computes rows in the batches of `t2t_keras.search.batches.length_batches`.

    Args:
        lengths: int32 [rows].
        tokens_per_batch: most that a batch's rows times the longest of them may be; one row always fits.
        compute: of the indices of a batch's rows, int32 [count], gives tensors [count, ...].
        results: of these tensors, with the sizes that are equal in all batches; None means one that depends on the
            request, but still is equal in all of its batches.

    Returns:
        The results of all rows, in the order of `lengths`.
    """
    order = tf.argsort(lengths, direction="DESCENDING", stable=True)
    longest_first = tf.gather(lengths, order)

    def body(done: tf.Tensor, *found: tf.Tensor) -> tuple[tf.Tensor, ...]:
        count = tf.maximum(1, tokens_per_batch // tf.maximum(1, longest_first[done]))
        rows = order[done : done + count]
        pairs = zip(found, compute(rows), strict=True)
        return done + tf.size(rows), *(_concatenated(before, new) for before, new in pairs)

    start = [tf.zeros([size or 0 for size in spec.shape], spec.dtype) for spec in results]
    shapes = (tf.TensorShape([]), *(spec.shape for spec in results))
    loop = (tf.constant(0), *start)
    _, *found = tf.while_loop(lambda done, *_: done < tf.size(lengths), body, loop, shape_invariants=shapes)
    places = tf.math.invert_permutation(order)
    return [tf.gather(values, places) for values in found]


def widened(values: tf.Tensor, sizes: Sequence[int | tf.Tensor]) -> tf.Tensor:
    """Values filled up with zeros behind, to the given sizes of the last axes."""
    rank = values.shape.rank - len(sizes)
    missing = [size - tf.shape(values)[rank + axis] for axis, size in enumerate(sizes)]
    return tf.pad(values, [[0, 0]] * rank + [[0, size] for size in missing])


def _concatenated(before: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
    """Rows behind rows; where there are none before, sizes that are not known yet are those of the new ones."""
    before = tf.reshape(before, tf.concat([tf.shape(before)[:1], tf.shape(new)[1:]], axis=0))
    return tf.concat([before, new], axis=0)
