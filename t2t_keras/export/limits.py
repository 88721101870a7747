"""What an exported model refuses: asserted in its graph before anything is computed, so whatever server runs it."""

import tensorflow as tf

from t2t_keras.inference.forced import MAX_SCORED_LENGTH

# Most tokens, end symbol included, of a line that is not cut into parts: memory grows with the square of the length.
MAX_LINE_TOKENS = MAX_SCORED_LENGTH

# Most elements of an array that a request makes, padding included. A short request can ask for a large one, since
# padding is as wide as the longest line: 256 lines, each with attention of 157 target and 207 source tokens, fit.
MAX_ELEMENTS = 2**23


def assert_line_lengths(name: str, lengths: tf.Tensor, purpose: str, limit: int = MAX_LINE_TOKENS) -> tf.Operation:
    """Refuses lines that are too long for one piece.

    Args:
        name: of the input.
        lengths: int [lines], tokens of each, end symbols included.
        purpose: what they are too long to be, for example "scored".
        limit: most tokens.

    Returns:
        The check, which whatever must not run without it depends on.
    """
    message = f"{name} has a line of more than {limit} tokens, the end counted: too long to be {purpose}"
    return tf.debugging.Assert(tf.reduce_all(lengths <= limit), [message])


def assert_size(what: str, *dimensions: int | tf.Tensor) -> tf.Operation:
    """Refuses a request that would make too large an array.

    Args:
        what: the array, for the message.
        dimensions: int scalars, at most so large, since nothing is computed yet.

    Returns:
        The check, which whatever must not run without it depends on.
    """
    shape = tf.stack([tf.cast(size, tf.int64) for size in dimensions])
    message = tf.strings.format(
        f"{what} would be of shape {{}}, which is more than {MAX_ELEMENTS} elements: send fewer or shorter lines",
        shape,
        summarize=-1,
    )
    # As float64, whose products do not overflow.
    return tf.debugging.Assert(tf.reduce_prod(tf.cast(shape, tf.float64)) <= MAX_ELEMENTS, [message])
