"""Splits text that is too long to be translated in one piece, in the graph, as `t2t_keras.text.splitting` does."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from t2t_keras.export.graph_text import stripped
from t2t_keras.text.splitting import CLOSING_CHARACTERS, ENDINGS_ALONE, ENDINGS_BEFORE_BLANKS

_NOWHERE = tf.int64.max


class Pieces(NamedTuple):
    """Pieces of texts, in order.

    Attributes:
        texts: string [pieces], none of them blank.
        rows: int64 [pieces], the index of each piece's text.
    """

    texts: tf.Tensor
    rows: tf.Tensor

    def beginnings(self) -> "Pieces":
        """Returns the first piece of each text."""
        is_first = tf.concat([[True], self.rows[1:] != self.rows[:-1]], axis=0)[: tf.size(self.rows)]
        return Pieces(tf.boolean_mask(self.texts, is_first), tf.boolean_mask(self.rows, is_first))


def split_contexts(texts: tf.Tensor, head_end: str, fits: Callable[[tf.Tensor], tf.Tensor]) -> Pieces:
    """Splits texts after their heads as `split_context` does; see `split_texts` for `texts` and `fits`."""
    halves = tf.strings.split(tf.strings.regex_replace(texts, f"({head_end})", "\\1\n", False), "\n", 1)
    has_context = halves.row_lengths() > 1
    halves = halves.to_tensor("", shape=[None, 2])  # --> [texts, 2]
    heads, rests = tf.unstack(halves, axis=1)
    has_head = has_context & fits(tf.strings.join([heads, heads], " "))
    heads = tf.where(has_head, tf.strings.join([heads, " "]), "")
    rests = tf.where(has_head, rests, texts)
    pieces = split_texts(rests, fits, heads)
    blank_rows = tf.where(has_head & (stripped(rests) == ""))[:, 0]
    rows = tf.concat([pieces.rows, blank_rows], axis=0)
    order = tf.argsort(rows, stable=True)
    all_texts = tf.concat([pieces.texts, stripped(tf.gather(texts, blank_rows))], axis=0)
    return Pieces(tf.gather(all_texts, order), tf.gather(rows, order))


def split_texts(texts: tf.Tensor, fits: Callable[[tf.Tensor], tf.Tensor], heads: tf.Tensor | None = None) -> Pieces:
    """Splits texts as `split_text` does.

    Args:
        texts: string [texts], valid UTF-8.
        fits: maps pieces, string [pieces], to whether each is short enough, bool [pieces].
        heads: string [texts], put in front of every piece of a text before `fits` sees it; None means no heads.
    """

    def add_heads(texts: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        return texts if heads is None else tf.strings.join([tf.gather(heads, rows), texts])

    def is_settled(texts: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        return (tf.strings.length(texts, unit="UTF8_CHAR") < 2) | fits(add_heads(texts, rows))

    def body(texts: tf.Tensor, rows: tf.Tensor, settled: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        open_pieces = tf.where(~settled)  # --> [open, 1]
        long = tf.gather(texts, open_pieces[:, 0])
        cuts, ends = _cuts(long), tf.strings.length(long, unit="UTF8_CHAR")
        halves = [
            tf.strings.substr(long, *span, unit="UTF8_CHAR") for span in ((tf.zeros_like(cuts), cuts), (cuts, ends))
        ]
        pairs = tf.stack([texts, tf.zeros_like(texts)], axis=1)  # --> [pieces, 2]
        pairs = tf.tensor_scatter_nd_update(pairs, open_pieces, stripped(tf.stack(halves, axis=1)))
        texts = tf.reshape(pairs, [-1])  # --> [2 * pieces]
        nonblank = tf.where(texts != "")[:, 0]
        texts, rows, settled = (
            tf.gather(values, nonblank) for values in (texts, tf.repeat(rows, 2), tf.repeat(settled, 2))
        )
        open_places = tf.where(~settled)
        open_values = (tf.gather(values, open_places[:, 0]) for values in (texts, rows))
        settled = tf.tensor_scatter_nd_update(settled, open_places, is_settled(*open_values))
        return texts, rows, settled

    texts = stripped(texts)
    rows = tf.where(texts != "")[:, 0]
    texts = tf.gather(texts, rows)
    state = (texts, rows, is_settled(texts, rows))
    shapes = tuple(tf.TensorShape([None]) for _ in state)
    texts, rows, _ = tf.while_loop(lambda *state: tf.reduce_any(~state[-1]), body, state, shape_invariants=shapes)
    return Pieces(add_heads(texts, rows), rows)


def _cuts(texts: tf.Tensor) -> tf.Tensor:
    """Returns the position of each text's cut, between its first and last characters: int32 [texts]."""
    characters = tf.strings.unicode_decode(texts, "UTF-8")  # --> [texts, ragged]
    starts, lengths, rows = characters.row_starts(), characters.row_lengths(), characters.value_rowids()
    middles = lengths // 2
    # From here on, values are per character; the characters of all texts are concatenated.
    start, length, middle = (tf.gather(values, rows) for values in (starts, lengths, middles))
    first, last = start + length // 4, start + length - length // 4
    place = tf.range(tf.size(characters.flat_values, out_type=tf.int64))
    is_central = (place >= first) & (place < last)
    nearest = []
    for is_end, next_start in (
        _sentence_ends(characters.flat_values, last),
        (characters.flat_values == ord(" "), place + 1),
    ):
        distance = next_start - start - middle
        is_allowed = is_central & is_end & (next_start < start + length)
        rank = tf.where(is_allowed, 2 * tf.abs(distance) + tf.cast(distance > 0, tf.int64), _NOWHERE)
        nearest.append(tf.math.unsorted_segment_min(rank, rows, tf.size(texts)))  # --> [texts]
    sentence, word = nearest
    rank = tf.where(sentence < _NOWHERE, sentence, tf.where(word < _NOWHERE, word, 0))
    distance = rank // 2
    return tf.cast(middles + tf.where(rank % 2 == 1, distance, -distance), tf.int32)


def _sentence_ends(characters: tf.Tensor, last: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the characters that end sentences.

    Args:
        characters: int32 [n], code points of all texts, concatenated.
        last: int64 [n], the end of the middle half of each character's text.

    Returns:
        Whether each character ends a sentence, bool [n], and where the next sentence begins, int64 [n], at most `last`.
    """
    total = tf.size(characters, out_type=tf.int64)
    is_other = ~_is_one_of(characters, CLOSING_CHARACTERS)
    other_positions = tf.concat([tf.where(is_other)[:, 0], [total]], axis=0)
    # `other_positions` lists the positions of characters that do not close a sentence. The number of these up to and
    # including a character is the index in `other_positions` of the next one after it.
    next_start = tf.minimum(tf.gather(other_positions, tf.cumsum(tf.cast(is_other, tf.int64))), last)
    next_character = tf.gather(tf.concat([characters, [0]], axis=0), next_start)
    has_blank = (next_start < last) & (next_character == ord(" "))
    is_end = _is_one_of(characters, ENDINGS_ALONE) | (_is_one_of(characters, ENDINGS_BEFORE_BLANKS) & has_blank)
    return is_end, next_start + tf.cast(has_blank, tf.int64)


def _is_one_of(characters: tf.Tensor, choices: str) -> tf.Tensor:
    codes = tf.constant([ord(character) for character in choices], tf.int32)
    return tf.reduce_any(characters[:, tf.newaxis] == codes, axis=1)
