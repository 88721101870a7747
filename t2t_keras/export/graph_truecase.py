"""Case at the beginning of sentences in the graph, exactly as `t2t_keras.text.truecase` computes it."""

import tensorflow as tf

from t2t_keras.export.graph_text import re2, with_characters
from t2t_keras.text.truecase import BEGINNING, Truecaser, capital, small

_BEGINNING = f"(?s){re2(BEGINNING)}"


class GraphTruecaser(tf.Module):
    """Computes `Truecaser.truecased` for tensors; the words are a table, which must be stored with the graph."""

    def __init__(self, truecaser: Truecaser) -> None:
        super().__init__()
        words = tf.constant(sorted(truecaser.words), tf.string)
        initializer = tf.lookup.KeyValueTensorInitializer(words, tf.ones_like(words, tf.int64))
        self._words = tf.lookup.StaticHashTable(initializer, default_value=0)

    def truecased(self, texts: tf.Tensor) -> tf.Tensor:
        """Truecases valid UTF-8 of any shape."""
        front, first, rest, remainder = _parts(texts)
        word = tf.strings.join([with_characters(first, small), rest])
        return tf.where(self._words.lookup(word) > 0, tf.strings.join([front, word, remainder]), texts)


def capitalised(texts: tf.Tensor) -> tf.Tensor:
    """Applies `t2t_keras.text.truecase.capitalised` to valid UTF-8 of any shape."""
    front, first, rest, remainder = _parts(texts)
    return tf.strings.join([front, with_characters(first, capital), rest, remainder])


def _parts(texts: tf.Tensor) -> list[tf.Tensor]:
    """Returns the groups of `BEGINNING`; for a text without a match, the whole text and three empty strings."""
    has_beginning = tf.strings.regex_full_match(texts, _BEGINNING)
    parts = [tf.strings.regex_replace(texts, _BEGINNING, f"\\{group}") for group in range(1, 5)]
    return [parts[0], *(tf.where(has_beginning, part, "") for part in parts[1:])]
