"""A step function that reads its logits from a table: a "model" whose every probability a test knows."""

import numpy as np
import reference_search
import tensorflow as tf

NUM_CODES = 1009
SOURCE_LEN = 4


class ScriptedModel:
    """Logits from a table [batch, NUM_CODES, vocab], looked up by a code of all tokens so far.

    The code of each hypothesis follows it, the tables are the "memory", and the
    "self-attention" grows by the codes of every step, as they were before any
    reordering: so a search that mixes up any of them gives other results, or fails.
    Asked for coverage, it attends to a source of three or four tokens as the logits say.
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

    def start_cache(self, beam: int) -> dict:
        return self.cache_of(tf.constant(self.tables), beam)

    @staticmethod
    def cache_of(tables: tf.Tensor, beam: int, coverage: bool = False) -> dict:
        batch = tf.shape(tables)[0]
        hypotheses = {"code": tf.zeros([batch, beam], tf.int32)}
        if coverage:
            padding = tf.range(SOURCE_LEN) >= ScriptedModel.source_lengths(tables)[:, tf.newaxis]
            started = tf.cast(padding, tf.float32)[:, tf.newaxis]
            hypotheses["coverage"] = tf.broadcast_to(started, [batch, beam, SOURCE_LEN])
        return {
            "position": tf.constant(0),
            "hypotheses": hypotheses,
            "self_attention": {"codes": tf.zeros([batch, 0], tf.int32)},
            "memory": (tables,),
            "constants": {"factor": tf.constant(31)},
        }

    @staticmethod
    def step(token_ids: tf.Tensor, cache: dict) -> tuple[tf.Tensor, dict]:
        (tables,) = cache["memory"]
        code, codes = cache["hypotheses"]["code"], cache["self_attention"]["codes"]
        beam, position = code.shape[1], cache["position"]
        tf.debugging.assert_equal(tf.shape(codes), [tf.shape(tables)[0], position * beam])
        token_ids = tf.reshape(token_ids, [-1, beam])
        code = tf.where(position == 0, 0, (code * cache["constants"]["factor"] + token_ids) % NUM_CODES)
        logits = tf.gather(tables, code, batch_dims=1)  # --> [batch, beam, vocab]
        hypotheses = {"code": code}
        if "coverage" in cache["hypotheses"]:
            padding = tf.range(SOURCE_LEN) >= ScriptedModel.source_lengths(tables)[:, tf.newaxis, tf.newaxis]
            scores = tf.where(padding, -np.inf, logits[:, :, :SOURCE_LEN])
            hypotheses["coverage"] = cache["hypotheses"]["coverage"] + tf.nn.softmax(scores)
        changes = {
            "position": position + 1,
            "hypotheses": hypotheses,
            "self_attention": {"codes": tf.concat([codes, code], axis=1)},
        }
        return tf.reshape(logits, [-1, tables.shape[-1]]), {**cache, **changes}

    @staticmethod
    def source_lengths(tables: tf.Tensor) -> tf.Tensor:
        """Tokens of each sentence's source, [batch]."""
        return tf.where(tables[:, 0, 0] > 0, SOURCE_LEN, SOURCE_LEN - 1)

    def coverage(self, sentence: int):
        """Of a text: the attention that each source token got while it was written."""
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
