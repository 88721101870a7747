"""What searches outside of a graph look up instead of computing it."""

from collections.abc import Callable

import tensorflow as tf

from t2t_keras.lite.first_entries import FirstEntries
from t2t_keras.models.contract import AttentionStacks


class Tables:
    """What the first layers of both sides do with tokens.

    Args:
        model: computes in float32.

    Attributes:
        source: float32 [vocab, d_model], every source token embedded.
        target: the same of target tokens.
        source_positions: gives what is added to the first source tokens, float32 [count, d_model].
        target_positions: the same of target tokens.
    """

    def __init__(self, model: AttentionStacks) -> None:
        tokens = tf.range(model.config.vocab_size)
        self.target = model.target_embedding(tokens).numpy()
        shared = model.source_embedding is model.target_embedding
        self.source = self.target if shared else model.source_embedding(tokens).numpy()

        def added_by(layer: Callable[[tf.Tensor], tf.Tensor]) -> FirstEntries:
            return FirstEntries(lambda count: layer(tf.zeros([1, count, model.config.d_model]))[0].numpy())

        self.source_positions = added_by(model.source_positions)
        self.target_positions = added_by(model.target_positions)
