"""The probability that a model gives to translations that somebody else made (forced decoding)."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_keras.config import PAD_ID


@dataclasses.dataclass(frozen=True)
class ForcedScore:
    """What a model thinks of one translation.

    Attributes:
        log_prob: total log-probability, the end symbol included.
        score: log-probability over length penalty, as a search's own.
        pieces: the translation's tokens, the end symbol last.
        token_log_probs: the log-probability of each of them, given those before it.
    """

    log_prob: float
    score: float
    pieces: tuple[str, ...]
    token_log_probs: tuple[float, ...]


def token_log_probs_function(model: Any) -> Callable[[np.ndarray, np.ndarray], tf.Tensor]:
    """A compiled function that gives the log-probability of each target token.

    Args:
        model: `model({"source": ids, "target": ids}, training=False)` gives logits
            [batch, target_len, vocab], where the logits at a position predict the token there.

    Returns:
        A function of source ids, int32 [batch, source_len], and target ids, int32 [batch, target_len], both
        padded with 0, that gives float32 [batch, target_len]: natural logarithms, 0 where there is padding.
    """

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2, autograph=False)
    def token_log_probs(source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        logits = tf.cast(model({"source": source, "target": target}, training=False), tf.float32)
        found = tf.gather(logits, target, batch_dims=2) - tf.reduce_logsumexp(logits, axis=-1)
        return tf.where(target == PAD_ID, 0.0, found)  # --> [batch, target_len]

    return token_log_probs
