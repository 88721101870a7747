"""The attention of a kind and a layer that each line of a request names, in the graph."""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras.export.graph_batches import widened
from t2t_keras.models.contract import Attentions
from t2t_keras.text.pieces import START

KINDS = Attentions._fields


class AttentionSizes(NamedTuple):
    """What a model has of each kind of attention.

    Attributes:
        layers: the number of layers of each kind.
        heads: the largest number of heads of any kind.
    """

    layers: tuple[int, ...]
    heads: int

    @classmethod
    def of(cls, attention: Attentions) -> "AttentionSizes":
        """The sizes that the shapes of the three kinds tell."""
        return cls(tuple(kind.shape[1] for kind in attention), max(kind.shape[2] for kind in attention))


class Choice(NamedTuple):
    """What each line asks for.

    Attributes:
        kinds: int32 [lines], places in `KINDS`.
        layers: int32 [lines], from 0.
    """

    kinds: tf.Tensor
    layers: tf.Tensor


def choice(kind: tf.Tensor, layer: tf.Tensor, sizes: AttentionSizes) -> Choice:
    """Reads what lines ask for, string [lines] and int32 [lines]; refuses kinds and layers that there are not.

    A kind without layers is not refused: it has weights of 0, for layer 0.
    """
    same = kind[:, tf.newaxis] == tf.constant(KINDS)  # --> [lines, kinds]
    kinds = tf.argmax(same, axis=1, output_type=tf.int32)
    counts = tf.maximum(tf.gather(tf.constant(sizes.layers), kinds), 1)
    there = ", ".join(f"{name} has {count}" for name, count in zip(KINDS, sizes.layers, strict=True))
    checks = [
        tf.debugging.Assert(tf.reduce_all(tf.reduce_any(same, axis=1)), [f"kind must be one of {', '.join(KINDS)}"]),
        tf.debugging.Assert(
            tf.reduce_all((layer >= 0) & (layer < counts)), [f"layer must be less than the number of layers: {there}"]
        ),
    ]
    with tf.control_dependencies(checks):
        return Choice(tf.identity(kinds), tf.identity(layer))


def chosen(attention: Attentions, asked: Choice) -> tf.Tensor:
    """The chosen kind and layer of each line, float32 [lines, heads, length, length], padded with zeros at the end."""
    length = tf.maximum(tf.shape(attention.encoder)[-1], tf.shape(attention.decoder)[-1])
    heads = AttentionSizes.of(attention).heads
    lines = tf.shape(asked.kinds)[0]
    kinds = []
    for number, weights in enumerate(attention):
        if not weights.shape[1]:
            kinds.append(tf.zeros([lines, heads, length, length]))
            continue
        layers = tf.where(asked.kinds == number, asked.layers, 0)
        one_layer = tf.gather(weights, layers, axis=1, batch_dims=1)  # --> [lines, heads, query_len, key_len]
        kinds.append(widened(one_layer, [heads, length, length]))
    stacked = tf.stack(kinds, axis=1)  # --> [lines, kinds, heads, length, length]
    return tf.ensure_shape(tf.gather(stacked, asked.kinds, axis=1, batch_dims=1), [None, heads, None, None])


def queries_and_keys(
    kinds: tf.Tensor, sources: tf.Tensor, targets: tf.Tensor, inputs: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """What belongs to each line's queries and to its keys, [lines, length], of what belongs to its source, its target
    and the decoder's inputs, [lines, length] each; see `Attentions`.
    """
    queries = tf.where((kinds == KINDS.index("encoder"))[:, tf.newaxis], sources, targets)
    keys = tf.where((kinds == KINDS.index("decoder"))[:, tf.newaxis], inputs, sources)
    return queries, keys


def pieces_of_queries_and_keys(
    kinds: tf.Tensor, source_pieces: tf.Tensor, target_pieces: tf.Tensor, target_lengths: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The tokens of each line's queries and keys as `Explanation.view` has them, from its source's and its target's;
    all are string [lines, length], padded with "".
    """
    shifted = tf.pad(target_pieces, [[0, 0], [1, 0]], constant_values=START)[:, : tf.shape(target_pieces)[1]]
    inputs = tf.where(tf.sequence_mask(target_lengths, tf.shape(target_pieces)[1]), shifted, "")
    width = tf.maximum(tf.shape(source_pieces)[1], tf.shape(target_pieces)[1])
    sources, targets, inputs = (
        tf.pad(side, [[0, 0], [0, width - tf.shape(side)[1]]], constant_values="")
        for side in (source_pieces, target_pieces, inputs)
    )
    queries, keys = queries_and_keys(kinds, sources, targets, inputs)
    return queries[:, : _longest(queries)], keys[:, : _longest(keys)]


def _longest(pieces: tf.Tensor) -> tf.Tensor:
    return tf.reduce_max(tf.pad(tf.math.count_nonzero(pieces != "", axis=1, dtype=tf.int32), [[0, 1]]))
