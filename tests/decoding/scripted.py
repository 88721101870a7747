"""A step function that reads its logits from a table: a "model" whose every probability a test knows."""

import numpy as np
import reference_search
import tensorflow as tf

NUM_CODES = 1009


class ScriptedModel:
    """Logits from a table [batch, NUM_CODES, vocab], looked up by a code of all tokens so far.

    The code of each hypothesis is its "self-attention", the tables are the
    "memory": so a search that mixes up either gives other results.
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
        batch = len(self.tables)
        return {
            "position": tf.constant(0),
            "self_attention": {"code": tf.zeros([batch * beam], tf.int32)},
            "memory": (tf.constant(self.tables),),
        }

    @staticmethod
    def step(token_ids: tf.Tensor, cache: dict) -> tuple[tf.Tensor, dict]:
        (tables,) = cache["memory"]
        code = cache["self_attention"]["code"]
        code = tf.where(cache["position"] == 0, 0, (code * 31 + token_ids) % NUM_CODES)
        batch = tf.shape(tables)[0]
        logits = tf.gather(tables, tf.reshape(code, [batch, -1]), batch_dims=1)  # --> [batch, beam, vocab]
        logits = tf.reshape(logits, [-1, tables.shape[-1]])
        return logits, {"position": cache["position"] + 1, "self_attention": {"code": code}, "memory": cache["memory"]}

    def next_log_probs(self, sentence: int) -> reference_search.LogProbs:
        def next_log_probs(tokens: tuple[int, ...]) -> np.ndarray:
            code = 0
            for token in tokens:
                code = (code * 31 + token) % NUM_CODES
            return reference_search.log_softmax(self.tables[sentence, code])

        return next_log_probs
