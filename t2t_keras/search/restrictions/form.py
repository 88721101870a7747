"""Outputs of a given form: nothing but some tokens, and as many as the source asks for."""

import dataclasses

import tensorflow as tf

from t2t_keras.search.state import DEAD
from t2t_keras.symbols import EOS_ID


@dataclasses.dataclass(frozen=True)
class OnlyTokens:
    """A rule that bars all tokens but some, and the end symbol.

    Attributes:
        token_ids: the allowed tokens.
    """

    token_ids: tuple[int, ...]

    def __call__(self, texts: tf.Tensor, vocab_size: int) -> tf.Tensor:
        del texts
        allowed = tf.reduce_any(tf.range(vocab_size)[:, tf.newaxis] == tf.constant([EOS_ID, *self.token_ids]), axis=1)
        return tf.where(allowed, 0.0, DEAD)[tf.newaxis, tf.newaxis]  # --> [1, 1, vocab]


@dataclasses.dataclass(frozen=True)
class Form:
    """What every output of a task looks like.

    Attributes:
        token_ids: the tokens that outputs consist of.
        word_starts: ids of the tokens that begin a word of a source, for outputs of one token a word; None for outputs
            of one token.
    """

    token_ids: tuple[int, ...]
    word_starts: tuple[int, ...] | None = None

    @property
    def rule(self) -> OnlyTokens:
        """The rule that bars other tokens."""
        return OnlyTokens(self.token_ids)

    def counts(self, source_ids: tf.Tensor) -> tf.Tensor:
        """Tokens of each output without its end symbol, at least 1: int32 [batch, source_len] --> int32 [batch]."""
        if self.word_starts is None:
            return tf.ones([tf.shape(source_ids)[0]], tf.int32)
        starts = tf.scatter_nd(
            tf.constant(self.word_starts)[:, tf.newaxis],
            tf.ones([len(self.word_starts)], tf.int32),
            [max(self.word_starts) + 2],  # one more entry stands for all later ids
        )
        known = tf.minimum(source_ids, max(self.word_starts) + 1)
        return tf.maximum(tf.reduce_sum(tf.gather(starts, known), axis=1), 1)
