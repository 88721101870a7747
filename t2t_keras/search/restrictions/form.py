"""Outputs of a given form: nothing but some tokens, and as many as the source asks for."""

import dataclasses

import numpy as np
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
        bias = np.full((1, 1, vocab_size), DEAD, np.float32)
        bias[..., [EOS_ID, *self.token_ids]] = 0
        return tf.constant(bias)  # --> [1, 1, vocab]


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
        begins = np.zeros(max(self.word_starts) + 2, np.int32)  # one more entry stands for all later ids
        begins[list(self.word_starts)] = 1
        known = tf.minimum(source_ids, len(begins) - 1)
        return tf.maximum(tf.reduce_sum(tf.gather(begins, known), axis=1), 1)
