"""Exact top-k of wide rows, several times faster than one `tf.math.top_k`."""

import tensorflow as tf

# Rows narrower than this gain nothing from a second stage.
_SMALLEST_ROW = 1024
_BLOCK_SIZES = range(48, 129)


def top_k(values: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the k largest entries of every row and their indices.

    `tf.math.top_k` scans entries one by one. This function first finds the maximum of each block of columns, which is
    vectorised. The k largest entries all lie in the k blocks with the largest maxima, so only these blocks are scanned.
    It takes a third of the time with 8,000 columns and a sixth with 37,000 (two cores, k = 9).

    Ties are resolved correctly too. Order entries by (larger value, lower index), and blocks by their best entry. An
    entry outside the k best blocks comes after the best entry of each of these blocks, so it is not among the k best.

    Args:
        values: floats [rows, width] without NaN.
        k: number of entries.

    Returns:
        The entries, [rows, k], largest first and ties by lower index, and their indices, int32 [rows, k].

    Raises:
        ValueError: the width is unknown when traced, or below k.
    """
    width = values.shape[-1]
    if width is None or width < k:
        raise ValueError(f"values must have a known width of at least k={k}, got shape {values.shape}")
    block_size = _block_size(width)
    if width < _SMALLEST_ROW or k * block_size > width // 2:
        return tf.math.top_k(values, k)
    num_blocks = -(-width // block_size)
    if num_blocks * block_size != width:
        values = tf.pad(values, [[0, 0], [0, num_blocks * block_size - width]], constant_values=-float("inf"))
    blocks = tf.reshape(values, [-1, num_blocks, block_size])  # --> [rows, num_blocks, block_size]
    _, best_blocks = tf.math.top_k(tf.reduce_max(blocks, axis=-1), k)
    # Ascending order keeps equal entries in the order of their indices. tf.sort takes twice as many operations.
    best_blocks = -tf.math.top_k(-best_blocks, k)[0]
    entries = tf.gather(blocks, best_blocks, batch_dims=1)  # --> [rows, k, block_size]
    best, places = tf.math.top_k(tf.reshape(entries, [-1, k * block_size]), k)  # --> [rows, k]
    starts = tf.gather(best_blocks, places // block_size, batch_dims=1) * block_size
    return best, starts + places % block_size


def largest(values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the largest entry of every row, [rows], and its first index, int32 [rows].

    The values are floats [rows, width] without NaN, of a width that is known when traced. An argmax over a wide row
    takes several times as long as a maximum, which is vectorised. The index is therefore sought among the maxima of
    blocks first, and then in one block.
    """
    width = values.shape[-1]
    block_size = _block_size(width)
    if width % block_size:
        return tf.reduce_max(values, axis=1), tf.argmax(values, axis=1, output_type=tf.int32)
    blocks = tf.reshape(values, [-1, width // block_size, block_size])  # --> [rows, num_blocks, block_size]
    maxima = tf.reduce_max(blocks, axis=2)  # --> [rows, num_blocks]
    block = tf.argmax(maxima, axis=1, output_type=tf.int32)
    place = tf.argmax(tf.gather(blocks, block, batch_dims=1), axis=1, output_type=tf.int32)
    return tf.reduce_max(maxima, axis=1), block * block_size + place


def _block_size(width: int) -> int:
    """Returns a block size that divides the width if there is one, because padding copies all rows."""
    return next((size for size in _BLOCK_SIZES if width % size == 0), 64)
