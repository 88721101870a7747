"""Selects, in the graph, the attention of the kind and the layer that each line of a request asks for."""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras.export.graph_batches import widened
from t2t_keras.models.contract import Attentions
from t2t_keras.text.pieces import START

KINDS = Attentions._fields


class AttentionSizes(NamedTuple):
    """The number of a model's layers and heads of attention.

    Attributes:
        layers: the number of layers of each kind.
        heads: the largest number of heads of any kind.
    """

    layers: tuple[int, ...]
    heads: int

    @classmethod
    def of(cls, attention: Attentions) -> "AttentionSizes":
        """Reads the sizes from the shapes of the three kinds of attention."""
        return cls(tuple(kind.shape[1] for kind in attention), max(kind.shape[2] for kind in attention))


class Choice(NamedTuple):
    """The attention that each line asks for.

    Attributes:
        kinds: int32 [lines], indices of `KINDS`.
        layers: int32 [lines], counted from 0.
    """

    kinds: tf.Tensor
    layers: tf.Tensor


def parse_choice(kind: tf.Tensor, layer: tf.Tensor, sizes: AttentionSizes) -> Choice:
    """Converts the inputs "kind", string [lines], and "layer", int32 [lines], of a request.

    Assertions in the graph reject unknown kinds and layers. Layer 0 of a kind without layers is allowed; its weights
    are 0.
    """
    matches = kind[:, tf.newaxis] == tf.constant(KINDS)  # --> [lines, kinds]
    kinds = tf.argmax(matches, axis=1, output_type=tf.int32)
    counts = tf.maximum(tf.gather(tf.constant(sizes.layers), kinds), 1)
    valid = ", ".join(f"{name} has {count}" for name, count in zip(KINDS, sizes.layers, strict=True))
    checks = [
        tf.debugging.Assert(tf.reduce_all(tf.reduce_any(matches, axis=1)), [f"kind must be one of {', '.join(KINDS)}"]),
        tf.debugging.Assert(
            tf.reduce_all((layer >= 0) & (layer < counts)), [f"layer must be less than the number of layers: {valid}"]
        ),
    ]
    with tf.control_dependencies(checks):
        return Choice(tf.identity(kinds), tf.identity(layer))


def select_attention(attention: Attentions, selection: Choice) -> tf.Tensor:
    """Selects the kind and the layer of each line: float32 [lines, heads, length, length], padded with zeros."""
    length = tf.maximum(tf.shape(attention.encoder)[-1], tf.shape(attention.decoder)[-1])
    heads = AttentionSizes.of(attention).heads
    lines = tf.shape(selection.kinds)[0]
    kinds = []
    for number, weights in enumerate(attention):
        if not weights.shape[1]:
            kinds.append(tf.zeros([lines, heads, length, length]))
            continue
        layers = tf.where(selection.kinds == number, selection.layers, 0)
        one_layer = tf.gather(weights, layers, axis=1, batch_dims=1)  # --> [lines, heads, query_len, key_len]
        kinds.append(widened(one_layer, [heads, length, length]))
    weights_by_kind = tf.stack(kinds, axis=1)  # --> [lines, kinds, heads, length, length]
    return tf.ensure_shape(tf.gather(weights_by_kind, selection.kinds, axis=1, batch_dims=1), [None, heads, None, None])


def queries_and_keys(
    kinds: tf.Tensor, sources: tf.Tensor, targets: tf.Tensor, inputs: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Selects the values of each line's queries and keys by its kind of attention; see `Attentions`.

    Args:
        kinds: int32 [lines], indices of `KINDS`.
        sources: values of the source's positions, [lines, length].
        targets: values of the target's positions, [lines, length].
        inputs: values of the decoder's inputs, [lines, length].

    Returns:
        The values of the queries and of the keys, [lines, length] each.
    """
    queries = tf.where((kinds == KINDS.index("encoder"))[:, tf.newaxis], sources, targets)
    keys = tf.where((kinds == KINDS.index("decoder"))[:, tf.newaxis], inputs, sources)
    return queries, keys


def pieces_of_queries_and_keys(
    kinds: tf.Tensor, source_pieces: tf.Tensor, target_pieces: tf.Tensor, target_lengths: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the tokens of each line's queries and keys, as `Explanation.view` does.

    Args:
        kinds: int32 [lines], indices of `KINDS`.
        source_pieces: string [lines, source_len], padded with "".
        target_pieces: string [lines, target_len], padded with "".
        target_lengths: int32 [lines], end symbols included.

    Returns:
        The tokens of the queries, string [lines, query_len], and of the keys, string [lines, key_len], padded with "".
    """
    previous_pieces = tf.pad(target_pieces, [[0, 0], [1, 0]], constant_values=START)[:, : tf.shape(target_pieces)[1]]
    inputs = tf.where(tf.sequence_mask(target_lengths, tf.shape(target_pieces)[1]), previous_pieces, "")
    width = tf.maximum(tf.shape(source_pieces)[1], tf.shape(target_pieces)[1])
    sources, targets, inputs = (
        tf.pad(side, [[0, 0], [0, width - tf.shape(side)[1]]], constant_values="")
        for side in (source_pieces, target_pieces, inputs)
    )
    queries, keys = queries_and_keys(kinds, sources, targets, inputs)
    return queries[:, : _longest(queries)], keys[:, : _longest(keys)]


def _longest(pieces: tf.Tensor) -> tf.Tensor:
    return tf.reduce_max(tf.pad(tf.math.count_nonzero(pieces != "", axis=1, dtype=tf.int32), [[0, 1]]))
