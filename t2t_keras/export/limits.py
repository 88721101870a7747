"""The limits of an exported model, which its graph asserts before any computation, so that they hold on any server."""

import tensorflow as tf

from t2t_keras.export_contract import MAX_LINE_TOKENS

# Maximum number of elements of an array of a request, padding included. A short request can need a large array, because
# lines are padded to the longest. For example, the attention of 256 lines of 157 target and 207 source tokens each is
# below this limit.
MAX_ELEMENTS = 2**23


def assert_line_lengths(name: str, lengths: tf.Tensor, purpose: str, limit: int = MAX_LINE_TOKENS) -> tf.Operation:
    """Returns an operation that rejects lines of more than `limit` tokens; make the computation depend on it.

    Args:
        name: the name of the input, for the error message.
        lengths: int [lines], end symbols included.
        purpose: completes "too long to be ..." in the message, for example "scored".
        limit: maximum number of tokens of a line, end symbol included.
    """
    message = f"{name} has a line of more than {limit} tokens, including the end symbol: too long to be {purpose}"
    return tf.debugging.Assert(tf.reduce_all(lengths <= limit), [message])


def assert_row_lengths(name: str, lengths: tf.Tensor, width: tf.Tensor) -> tf.Operation:
    """Returns an operation that rejects lengths outside of their rows; make the computation depend on it.

    Args:
        name: the name of the input that holds the lengths, for the error message.
        lengths: int32 [rows], numbers of tokens.
        width: int32 scalar, number of tokens in each row, padding included.
    """
    wrong = tf.boolean_mask(lengths, (lengths < 0) | (lengths > width))
    message = tf.strings.format(f'"{name}" is {{}}, but the row has {{}} tokens', (wrong[:1], width))
    message = tf.strings.regex_replace(message, r"is \[(-?\d*)\]", r"is \1")
    return tf.debugging.Assert(tf.size(wrong) == 0, [message])


def assert_equal_line_counts(**inputs: tf.Tensor) -> tf.Operation:
    """Returns an operation that rejects inputs with different numbers of lines; make the computation depend on it."""
    lines = tf.stack([tf.shape(values)[0] for values in inputs.values()])
    is_same = tf.reduce_all(lines == lines[0])
    return tf.debugging.Assert(is_same, [f"{' and '.join(inputs)} must have equal numbers of lines", lines])


def assert_size(subject: str, *dimensions: int | tf.Tensor) -> tf.Operation:
    """Returns an operation that rejects an array of more than `MAX_ELEMENTS`; make the computation depend on it.

    Args:
        subject: describes the array in the error message.
        *dimensions: int scalars, upper bounds of the array's sizes, because the array is not computed yet.
    """
    shape = tf.stack([tf.cast(size, tf.int64) for size in dimensions])
    message = tf.strings.format(
        f"{subject} would have the shape {{}}, which is more than {MAX_ELEMENTS} elements: send fewer or shorter lines",
        shape,
        summarize=-1,
    )
    # The product is in float64, because a product of integers could overflow.
    return tf.debugging.Assert(tf.reduce_prod(tf.cast(shape, tf.float64)) <= MAX_ELEMENTS, [message])
