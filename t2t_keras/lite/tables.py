"""Lookup tables that replace computations in searches outside the graph."""

from collections.abc import Callable

import tensorflow as tf

from t2t_keras.lite.first_entries import FirstEntries
from t2t_keras.models.contract import AttentionStacks


class Tables:
    """All embedded tokens (`source`, `target`: float32 [vocab, d_model]), and functions that give what is added at the
    first positions (`source_positions`, `target_positions`: float32 [count, d_model]).
    """

    def __init__(self, model: AttentionStacks) -> None:
        self.target = model.target_embedding(tf.range(model.config.vocab_size)).numpy()
        shared = model.source_embedding is model.target_embedding
        self.source = self.target if shared else model.source_embedding(tf.range(model.config.source_entries)).numpy()

        def added_by(layer: Callable[[tf.Tensor], tf.Tensor]) -> FirstEntries:
            return FirstEntries(lambda count: layer(tf.zeros([1, count, model.config.d_model]))[0].numpy())

        self.source_positions = added_by(model.source_positions)
        self.target_positions = added_by(model.target_positions)
