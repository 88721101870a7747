"""The limits of an exported model, asserted in its graph before any computation, whatever server runs it."""

import tensorflow as tf

from t2t_keras.inference.forced import MAX_SCORED_LENGTH

# Most tokens, end symbol included, of a line that is not cut into parts: memory grows with the square of the length.
MAX_LINE_TOKENS = MAX_SCORED_LENGTH

# Most elements of an array of a request, padding included. A short request can need a large array, because lines are
# padded to the longest: 256 lines, each with attention of 157 target and 207 source tokens, fit.
MAX_ELEMENTS = 2**23


def assert_line_lengths(name: str, lengths: tf.Tensor, purpose: str, limit: int = MAX_LINE_TOKENS) -> tf.Operation:
    """Returns an operation that refuses lines of more than `limit` tokens; make the computation depend on it.

    `lengths`, int [lines], count end symbols; `purpose` is what a line is too long to be, for example "scored".
    """
    message = f"{name} has a line of more than {limit} tokens, the end counted: too long to be {purpose}"
    return tf.debugging.Assert(tf.reduce_all(lengths <= limit), [message])


def assert_as_many_lines(**inputs: tf.Tensor) -> tf.Operation:
    """Returns an operation that refuses inputs with different numbers of lines."""
    lines = tf.stack([tf.shape(values)[0] for values in inputs.values()])
    same = tf.reduce_all(lines == lines[0])
    return tf.debugging.Assert(same, [f"{' and '.join(inputs)} must have as many lines", lines])


def assert_size(what: str, *dimensions: int | tf.Tensor) -> tf.Operation:
    """Returns an operation that refuses an array `what` that is too large; make the computation depend on it.

    `dimensions` are int scalars, upper bounds of the array's sizes, because nothing is computed yet.
    """
    shape = tf.stack([tf.cast(size, tf.int64) for size in dimensions])
    message = tf.strings.format(
        f"{what} would be of shape {{}}, which is more than {MAX_ELEMENTS} elements: send fewer or shorter lines",
        shape,
        summarize=-1,
    )
    # In float64, because a product of integers could overflow.
    return tf.debugging.Assert(tf.reduce_prod(tf.cast(shape, tf.float64)) <= MAX_ELEMENTS, [message])
