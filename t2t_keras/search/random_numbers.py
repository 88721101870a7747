"""Random numbers as a function of a key and a counter, so that a sentence's numbers do not depend on its batch.

TensorFlow's stateless generators do not offer this: they take one seed per tensor, and a number depends on its position
in the tensor.

Reference: Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3" (Threefry-2x32, 20 rounds).
"""

import tensorflow as tf

from t2t_keras.symbols import PAD_ID

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_MASK = 0xFFFFFFFF  # 32-bit words are kept in int64, which every device can add and shift


def threefry(keys: tuple[tf.Tensor, tf.Tensor], counters: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Threefry-2x32: maps a key and a counter, two integer words each, to 64 pseudo-random bits.

    Only the lower 32 bits of each word are used, and counters broadcast against keys. Returns two words in
    [0, 2 ** 32), int64.
    """
    key = [_word(part) for part in keys]
    key.append(key[0] ^ key[1] ^ _PARITY)
    x, y = ((_word(part) + key[i]) & _MASK for i, part in enumerate(counters))
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            x = (x + y) & _MASK
            product = y * 2**rotation  # at most 61 bits
            y = ((product & _MASK) | tf.bitwise.right_shift(y, tf.constant(32 - rotation, tf.int64))) ^ x
        x = (x + key[(block + 1) % 3]) & _MASK
        y = (y + key[(block + 2) % 3] + block + 1) & _MASK
    return x, y


def uniform(keys: tf.Tensor, steps: tf.Tensor, num_samples: int) -> tf.Tensor:
    """Returns uniform numbers in [0, 1), multiples of 2 ** -24: float32 [steps, batch, samples].

    Each number is a function of only its sentence's key, int32 [batch, 2], its step and its sample.
    """
    words = keys[:, :1], keys[:, 1:]  # --> [batch, 1]
    first, _ = threefry(words, (tf.range(steps)[:, tf.newaxis, tf.newaxis], tf.range(num_samples)))
    return tf.cast(tf.bitwise.right_shift(first, tf.constant(8, tf.int64)), tf.float32) * 2.0**-24


def sentence_keys(seed: int | tf.Tensor, source_ids: tf.Tensor) -> tf.Tensor:
    """Returns a key for each sentence, int32 [batch, 2], that depends only on the seed and the sentence's tokens.

    The seed is any integer or a tensor, int64 [batch]. Source ids are int32 [batch, source_len], padded at the end.
    """
    if isinstance(seed, tf.Tensor):
        column = seed[:, tf.newaxis]  # --> [batch, 1]
        seed_words = (_word(column), _word(tf.bitwise.right_shift(column, tf.constant(32, tf.int64))))
    else:
        seed_words = (tf.constant(seed & _MASK, tf.int64), tf.constant((seed >> 32) & _MASK, tf.int64))
    # A sum ignores order, so each token is first hashed together with its position.
    token_words = threefry(seed_words, (source_ids, tf.range(tf.shape(source_ids)[1])))
    is_token = tf.cast(source_ids != PAD_ID, tf.int64)
    sums = tuple(tf.reduce_sum(word * is_token, axis=1) for word in token_words)  # --> [batch]
    length = tf.reduce_sum(is_token, axis=1)
    words = tf.stack(threefry(sums, (length, tf.zeros_like(length))), axis=1)  # --> [batch, 2]
    return tf.cast(tf.where(words > 0x7FFFFFFF, words - (_MASK + 1), words), tf.int32)


def _word(value: tf.Tensor) -> tf.Tensor:
    return tf.cast(value, tf.int64) & _MASK
