"""Rules that bar tokens, given the text of a hypothesis so far.

A rule is a callable `rule(texts, vocab_size) -> bias`. The texts, int32 [open, beam, length], are the tokens of the
active hypotheses (arbitrary in an empty slot). The bias, float32 [open, beam, vocab] or broadcastable to it, is 0 for
allowed tokens and -inf for barred ones. Rules affect only the choice: log-probabilities remain the model's,
normalised over the whole vocabulary. A hypothesis without any allowed token is dropped.
"""

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from t2t_keras.search.state import DEAD
from t2t_keras.symbols import EOS_ID, PAD_ID

Rule = Callable[[tf.Tensor, int], tf.Tensor]

# Pads texts at the front; no token has this id.
_NOTHING = -1


@dataclasses.dataclass(frozen=True)
class NoRepeatNgram:
    """Bars tokens that would repeat an n-gram of the output.

    Attributes:
        n: length of the n-grams; with 1, every token occurs at most once.

    Raises:
        ValueError: `n` is below 1.
    """

    n: int

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"n must be positive, got {self.n}")

    def __call__(self, texts: tf.Tensor, vocab_size: int) -> tf.Tensor:
        tail = _tail(texts, self.n - 1)  # --> [open, beam, n - 1]
        windows = tf.maximum(tf.shape(texts)[2] - self.n + 1, 0)
        last = texts[:, :, self.n - 1 :]  # --> [open, beam, windows]
        repeats = tf.ones_like(last, tf.bool)
        for i in range(self.n - 1):
            repeats &= texts[:, :, i : i + windows] == tail[:, :, i : i + 1]
        return _bar(last, repeats, texts.shape[1], vocab_size)


@dataclasses.dataclass(frozen=True)
class ExcludedPhrases:
    """Bars tokens that would complete an excluded phrase.

    Attributes:
        phrases: sequences of one or more token ids.

    Raises:
        ValueError: a phrase is empty, or has padding or a negative id. A call raises it for an id outside the
            vocabulary.
    """

    phrases: tuple[tuple[int, ...], ...]

    def __init__(self, phrases: Sequence[Sequence[int]]) -> None:
        object.__setattr__(self, "phrases", tuple(tuple(map(int, phrase)) for phrase in phrases))
        for phrase in self.phrases:
            if not phrase or min(phrase) <= PAD_ID:
                raise ValueError(f"phrases must be sequences of at least one positive id each, got {phrase}")

    def __call__(self, texts: tf.Tensor, vocab_size: int) -> tf.Tensor:
        largest = max((max(phrase) for phrase in self.phrases), default=0)
        if largest >= vocab_size:
            raise ValueError(f"phrases have the id {largest}, the vocabulary ends at {vocab_size - 1}")
        open_sentences, beam = tf.shape(texts)[0], texts.shape[1]
        bias = tf.zeros([open_sentences, beam, vocab_size])
        for length in sorted({len(phrase) for phrase in self.phrases}):
            phrases = tf.constant([phrase for phrase in self.phrases if len(phrase) == length])
            tail = _tail(texts, length - 1)[:, :, tf.newaxis]  # --> [open, beam, 1, length - 1]
            ends_phrase = tf.reduce_all(tail == phrases[:, :-1], axis=-1)  # --> [open, beam, phrases]
            last = tf.broadcast_to(phrases[:, -1], tf.shape(ends_phrase))
            bias += _bar(last, ends_phrase, beam, vocab_size)
        return bias


def excluded_bias(texts: tf.Tensor, phrases: tf.Tensor, vocab_size: int) -> tf.Tensor:
    """Returns the bias of `ExcludedPhrases` with separate phrases for each sentence, float32 [open, beam, vocab].

    Phrases are int32 [open, phrases, phrase_len] with a phrase_len of at least 1, padded with zeros at the front. A
    phrase of zeros is padding.
    """
    before, last = phrases[:, tf.newaxis, :, :-1], phrases[:, tf.newaxis, :, -1]
    tail = _tail(texts, tf.shape(phrases)[2] - 1)[:, :, tf.newaxis]  # --> [open, beam, 1, phrase_len - 1]
    ends_phrase = tf.reduce_all((tail == before) | (before == PAD_ID), axis=-1)  # --> [open, beam, phrases]
    last = tf.broadcast_to(last, tf.shape(ends_phrase))
    return _bar(last, ends_phrase & (last != PAD_ID), texts.shape[1], vocab_size)


def ending_bias(may_end: tf.Tensor, vocab_size: int, must_end: bool) -> tf.Tensor:
    """Returns a bias that bars padding, and the end symbol unless `may_end`: float32 [open, beam or 1, vocab].

    `may_end` is bool [open, beam or 1]. With `must_end`, all tokens but the end symbol are barred where it is true.
    """
    ids, may_end = tf.range(vocab_size), may_end[:, :, tf.newaxis]
    is_barred = (ids == PAD_ID) | ((ids == EOS_ID) & ~may_end)
    if must_end:
        is_barred |= (ids != EOS_ID) & may_end
    return tf.where(is_barred, DEAD, 0.0)


def forced_bias(bias: tf.Tensor, prefixes: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
    """Returns a bias that bars all tokens but the prefix's at a position.

    Where the prefix is zero or has ended, `bias` is returned unchanged.

    Args:
        bias: float32 [open, beam or 1, vocab].
        prefixes: int32 [open, prefix_len].
        position: int32 scalar.
    """
    padded = tf.pad(prefixes, [[0, 0], [0, 1]])  # --> [open, prefix_len + 1]
    next_ids = padded[:, tf.minimum(position, tf.shape(prefixes)[1])][:, tf.newaxis, tf.newaxis]  # --> [open, 1, 1]
    prefix_bias = tf.where(tf.range(bias.shape[-1]) == next_ids, 0.0, DEAD)  # --> [open, 1, vocab]
    return tf.where(next_ids == PAD_ID, bias, prefix_bias)


def _tail(texts: tf.Tensor, length: int | tf.Tensor) -> tf.Tensor:
    """Returns the last `length` tokens of every text, [open, beam, length]."""
    padded = tf.pad(texts, [[0, 0], [0, 0], [length, 0]], constant_values=_NOTHING)
    return padded[:, :, tf.shape(texts)[2] :]


def _bar(token_ids: tf.Tensor, mask: tf.Tensor, beam: int, vocab_size: int) -> tf.Tensor:
    """Returns a bias [open, beam, vocab] that bars the tokens [open, beam, count] for which `mask` is true."""
    shape, width = tf.shape(token_ids), tf.shape(token_ids)[2]
    rows = tf.repeat(tf.range(shape[0] * shape[1]), width)
    places = tf.stack([rows, tf.reshape(token_ids, [-1])], axis=1)  # --> [open * beam * count, 2]
    hits = tf.scatter_nd(places, tf.reshape(tf.cast(mask, tf.float32), [-1]), [shape[0] * shape[1], vocab_size])
    return tf.reshape(tf.where(hits > 0, DEAD, 0.0), [shape[0], beam, vocab_size])
