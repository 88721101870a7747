"""Sentence GLEU of token ids, computed in the graph, as the reward of a sampled candidate."""

import tensorflow as tf

from t2t_keras.symbols import EOS_ID, PAD_ID
from t2t_keras.tensor import Tensor

_LONGEST = 4


def sentence_gleu(candidates: Tensor, references: Tensor) -> Tensor:
    """Computes sentence GLEU: the minimum of n-gram precision and recall.

    N-grams of one to four tokens are pooled. A repeated n-gram matches as often as it occurs on both sides. The end
    symbol is ignored. The result is 0 if either side has no tokens.

    Args:
        candidates: int32 [batch, candidate_len], with or without an end symbol, padded with 0.
        references: int32 [batch, reference_len], likewise.

    Returns:
        GLEU of each candidate, float32 [batch], in [0, 1].

    Reference: Wu et al. 2016, "Google's Neural Machine Translation System", section 5.
    """
    words, lengths = _words(candidates, filler=-1)
    reference_words, reference_lengths = _words(references, filler=-2)
    # --> [batch, candidate_len + 1, words of the other side] each
    self_pairs, cross_pairs = (words[:, :, tf.newaxis] == side[:, tf.newaxis] for side in (words, reference_words))
    places = tf.range(tf.shape(words)[1])
    self_grams, cross_grams = self_pairs, cross_pairs
    matches, maxima = tf.zeros_like(lengths, tf.float32), tf.zeros_like(lengths, tf.float32)
    for n in range(1, _LONGEST + 1):
        if n > 1:  # n-grams are equal if their first tokens are, and the (n - 1)-grams that follow
            self_grams, cross_grams = self_pairs & _shift(self_grams), cross_pairs & _shift(cross_grams)
        is_gram = places <= (lengths - n)[:, tf.newaxis]  # --> [batch, candidate_len + 1]
        # The occurrences of an n-gram share its clipped count: they add up to the smaller of the two sides' counts.
        shares = tf.minimum(tf.math.divide_no_nan(_count(cross_grams), _count(self_grams)), 1.0)
        matches += tf.reduce_sum(tf.where(is_gram, shares, 0.0), axis=1)
        maxima += tf.cast(tf.maximum(tf.maximum(lengths, reference_lengths) - n + 1, 0), tf.float32)
    return matches / tf.maximum(maxima, 1.0)


def _words(token_ids: Tensor, filler: int) -> tuple[Tensor, Tensor]:
    """Replaces padding and end symbols with `filler`.

    Returns the ids, int32 [batch, length + 1], and the number of real tokens per row, int32 [batch].
    """
    is_word = (token_ids != PAD_ID) & (token_ids != EOS_ID)
    words = tf.pad(tf.where(is_word, token_ids, filler), [[0, 0], [0, 1]], constant_values=filler)
    return words, tf.math.count_nonzero(is_word, axis=1, dtype=tf.int32)


def _shift(matches: Tensor) -> Tensor:
    """Shifts `matches`, bool [batch, words, words of the other side], one position to the left on both sides."""
    return tf.pad(matches[:, 1:, 1:], [[0, 0], [0, 1], [0, 1]])


def _count(matches: Tensor) -> Tensor:
    """Counts the positions of the second side at which each n-gram occurs, float32 [batch, words]."""
    return tf.reduce_sum(tf.cast(matches, tf.float32), axis=2)
