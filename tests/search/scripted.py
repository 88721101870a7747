"""A step function that reads logits from a table, so that tests know every probability."""

import numpy as np
import tensorflow as tf

from t2t_keras.models.contract import Cache
from tests.search import reference_search

NUM_CODES = 1009
SOURCE_LEN = 4


class ScriptedModel:
    """Logits from a table [batch, NUM_CODES, vocab], looked up by a code of all tokens so far.

    Each hypothesis carries its code, the tables are the source, and the cache per sentence grows by the codes of every
    step before reordering. A search that mixes up any of these gives different results or fails. With coverage, the
    model attends to a source of three or four tokens according to its logits.
    """

    def __init__(self, tables: np.ndarray):
        self.tables = tables.astype(np.float32)

    @classmethod
    def random(cls, seed: int, batch: int, vocab: int, scale: float = 2.0, end_bias: float = 0.0) -> "ScriptedModel":
        tables = np.random.default_rng(seed).normal(scale=scale, size=(batch, NUM_CODES, vocab))
        tables[:, :, reference_search.EOS] += end_bias
        return cls(tables)

    def rows(self, *rows: int) -> "ScriptedModel":
        return ScriptedModel(self.tables[list(rows)])

    def start_cache(self, beam: int) -> Cache:
        return self.cache_of(tf.constant(self.tables), beam)

    @staticmethod
    def cache_of(tables: tf.Tensor, beam: int, coverage: bool = False) -> Cache:
        batch = tf.shape(tables)[0]
        started = tf.zeros([batch, 1, 0])
        if coverage:
            padding = tf.range(SOURCE_LEN) >= ScriptedModel.source_lengths(tables)[:, tf.newaxis]
            started = tf.cast(padding, tf.float32)[:, tf.newaxis]
        return Cache(
            position=tf.constant(0),
            per_hypothesis=tf.zeros([batch, beam], tf.int32),
            per_sentence=tf.zeros([batch, 0], tf.int32),
            source=(tables,),
            coverage=tf.repeat(started, beam, axis=1),
        )

    @staticmethod
    def step(token_ids: tf.Tensor, cache: Cache) -> tuple[tf.Tensor, Cache]:
        (tables,) = cache.source
        code, codes, position, coverage = cache.per_hypothesis, cache.per_sentence, cache.position, cache.coverage
        beam = code.shape[1]
        tf.debugging.assert_equal(tf.shape(codes), [tf.shape(tables)[0], position * beam])
        token_ids = tf.reshape(token_ids, [-1, beam])
        code = tf.where(position == 0, 0, (code * 31 + token_ids) % NUM_CODES)
        logits = tf.gather(tables, code, batch_dims=1)  # --> [batch, beam, vocab]
        if coverage.shape[2] != 0:
            padding = tf.range(SOURCE_LEN) >= ScriptedModel.source_lengths(tables)[:, tf.newaxis, tf.newaxis]
            coverage += tf.nn.softmax(tf.where(padding, -np.inf, logits[:, :, :SOURCE_LEN]))
        codes = tf.concat([codes, code], axis=1)
        return tf.reshape(logits, [-1, tables.shape[-1]]), Cache(position + 1, code, codes, cache.source, coverage)

    @staticmethod
    def source_lengths(tables: tf.Tensor) -> tf.Tensor:
        """Returns the number of source tokens of each sentence, [batch]."""
        return tf.where(tables[:, 0, 0] > 0, SOURCE_LEN, SOURCE_LEN - 1)

    def coverage(self, sentence: int):
        """Returns the total attention that a text has paid to each source token."""
        length = int(self.source_lengths(self.tables)[sentence])

        def coverage(tokens: tuple[int, ...]) -> np.ndarray:
            code, total = 0, np.zeros(length)
            for token in tokens:
                total += np.exp(reference_search.log_softmax(self.tables[sentence, code, :length]))
                code = (code * 31 + token) % NUM_CODES
            return total

        return coverage

    def next_log_probs(self, sentence: int) -> reference_search.LogProbs:
        def next_log_probs(tokens: tuple[int, ...]) -> np.ndarray:
            code = 0
            for token in tokens:
                code = (code * 31 + token) % NUM_CODES
            return reference_search.log_softmax(self.tables[sentence, code])

        return next_log_probs
