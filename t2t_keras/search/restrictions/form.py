"""Outputs of a given form: a single token from a set, or the words of the source, each followed by such a token."""

import dataclasses
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.search.state import DEAD
from t2t_keras.symbols import EOS_ID, PAD_ID


@dataclasses.dataclass(frozen=True)
class OnlyTokens:
    """A rule that bars all tokens except the end symbol and a given set.

    Attributes:
        token_ids: the allowed tokens.
    """

    token_ids: tuple[int, ...]

    def __call__(self, texts: tf.Tensor, vocab_size: int) -> tf.Tensor:
        bias = np.full((1, 1, vocab_size), DEAD, np.float32)
        bias[..., [EOS_ID, *self.token_ids]] = 0
        return tf.constant(bias)  # --> [1, 1, vocab]


class OutputLayout(NamedTuple):
    """The positions of outputs whose tokens are known, and those that the search fills.

    Attributes:
        lengths: int32 [batch], number of tokens of each output without its end symbol, at least 1.
        known: int32 [batch, output_len], the known tokens, and zeros for the search to fill; None if none is known.
    """

    lengths: tf.Tensor
    known: tf.Tensor | None

    def prefixes(self, first: tf.Tensor | None = None) -> tf.Tensor | None:
        """Returns the prefixes for a `Goal`: the known tokens, with given tokens at the first free positions.

        The given tokens, `first`, are int32 [batch, first_len], padded with zeros at the end.
        """
        if first is None or self.known is None:
            return first if self.known is None else self.known
        is_free = self.known == PAD_ID
        places = tf.cumsum(tf.cast(is_free, tf.int32), axis=1, exclusive=True)  # --> [batch, output_len]
        first = tf.pad(first, [[0, 0], [0, 1]])  # --> [batch, first_len + 1]
        places = tf.minimum(places, tf.shape(first)[1] - 1)
        return tf.where(is_free, tf.gather(first, places, batch_dims=1), self.known)

    def num_chosen(self) -> tf.Tensor:
        """Returns how many tokens of each output the search chooses, int32 [batch]."""
        if self.known is None:
            return self.lengths
        return self.lengths - tf.math.count_nonzero(self.known, axis=1, dtype=tf.int32)


@dataclasses.dataclass(frozen=True)
class Form:
    """The form of a task's outputs.

    Attributes:
        token_ids: the tokens that a search may choose.
        word_starts: ids of the tokens that begin a word of a source. An output is then the words of the source, each
            followed by a chosen token. None means that an output is a single chosen token.
    """

    token_ids: tuple[int, ...]
    word_starts: tuple[int, ...] | None = None

    @property
    def rule(self) -> OnlyTokens:
        """The rule that bars all tokens except `token_ids` and the end symbol."""
        return OnlyTokens(self.token_ids)

    def limits(self, source_lengths: tf.Tensor) -> tf.Tensor:
        """Returns the maximum numbers of output tokens for source lengths; int32 [...], end symbols included."""
        return tf.fill(tf.shape(source_lengths), 2) if self.word_starts is None else 2 * source_lengths

    def layout(self, source_ids: tf.Tensor) -> OutputLayout:
        """Returns the layout of outputs for sources, int32 [batch, source_len], end symbols included."""
        batch = tf.shape(source_ids)[0]
        if self.word_starts is None:
            return OutputLayout(tf.ones([batch], tf.int32), None)
        starts = np.zeros(max(self.word_starts) + 2, np.int32)  # the last entry stands for all higher ids
        starts[list(self.word_starts)] = 1
        words = tf.cumsum(tf.gather(starts, tf.minimum(source_ids, len(starts) - 1)), axis=1)  # --> [batch, source_len]
        words = tf.maximum(words, 1)  # tokens before the first word belong to it
        is_inside = (source_ids != PAD_ID) & (source_ids != EOS_ID)
        lengths = tf.reduce_sum(tf.cast(is_inside, tf.int32), axis=1) + tf.reduce_max(words, axis=1)
        places = tf.range(tf.shape(source_ids)[1]) + words - 1  # a chosen token follows each earlier word
        rows = tf.where(is_inside)  # --> [tokens, 2]
        targets = tf.stack([rows[:, 0], tf.cast(tf.gather_nd(places, rows), tf.int64)], axis=1)  # --> [tokens, 2]
        shape = tf.stack([batch, tf.reduce_max(tf.pad(lengths, [[0, 1]]))])
        # --> [batch, output_len]
        known = tf.scatter_nd(targets, tf.gather_nd(source_ids, rows), tf.cast(shape, tf.int64))
        return OutputLayout(lengths, known)
