"""Joins the translations of parts into those of lines, in the graph, as `t2t_keras.inference.translation` does."""

from typing import Literal, NamedTuple

import tensorflow as tf

from t2t_keras.export_contract import LOWEST

# The value of a part without a translation: below every real value, and finite even when summed over many parts.
_MISSING = -1e30

Joining = Literal["sums", "ranks", "best"]


class Hypotheses(NamedTuple):
    """Up to k translations of each line, best first.

    Attributes:
        texts: string [lines, k]; empty in an unused slot.
        values: float32 [lines, k], scores or log-probabilities; `LOWEST` in an unused slot, or if the translation of a
            part is missing.
    """

    texts: tf.Tensor
    values: tf.Tensor


def select_answers(rows: tf.Tensor, num_lines: tf.Tensor, texts: tf.Tensor, no_answer: str) -> tf.Tensor:
    """Selects the parts whose best translation is an answer; in lines without an answer, all parts. See `best_answers`.

    Args:
        rows: as for `join_parts`.
        num_lines: as for `join_parts`.
        texts: as for `join_parts`.
        no_answer: the text of a part that has no answer.

    Returns:
        bool [parts].
    """
    answers = tf.cast(texts[:, 0] != no_answer, tf.int32)
    has_answer = tf.math.unsorted_segment_max(answers, rows, num_lines) > 0  # --> [num_lines]
    return (answers > 0) | ~tf.gather(has_answer, rows)


def join_parts(
    rows: tf.Tensor,
    before: tf.Tensor,
    num_lines: tf.Tensor,
    texts: tf.Tensor,
    values: tf.Tensor,
    exists: tf.Tensor,
    mode: Joining,
) -> Hypotheses:
    """Joins the translations of parts into those of lines, [num_lines, k].

    Args:
        rows: int32 [parts], the index of each part's line, ascending; a blank line has no parts.
        before: string [parts], the white space in front of each part. A single blank is dropped next to an empty text,
            and so in front of a line's first part.
        num_lines: int32 scalar.
        texts: string [parts, k], the translations of each part.
        values: float32 [parts, k], scores or log-probabilities.
        exists: bool [parts, k], which slots hold a translation.
        mode: "sums" joins the combinations of parts with the largest sums of values, "ranks" joins translations of
            equal rank, and "best" takes the best translations of any single part.

    Returns:
        The translations of the lines. Except with "best", values are summed over the parts of a line.
    """
    k = texts.shape[1]
    texts, values = _pack(texts, tf.cast(values, tf.float64), exists)
    counts = tf.math.unsorted_segment_sum(tf.ones_like(rows), rows, num_lines)  # --> [num_lines]
    firsts = tf.cumsum(counts, exclusive=True)
    no_text = tf.fill([num_lines, k], "")
    start = tf.constant([0.0] + [0.0 if mode == "ranks" else -float("inf")] * (k - 1), tf.float64)
    totals = tf.broadcast_to(start, [num_lines, k])
    if mode == "best":  # only lines without parts have the empty translation
        totals = tf.where((counts > 0)[:, tf.newaxis], tf.constant(-float("inf"), tf.float64), totals)

    def add_part(part: tf.Tensor, line_texts: tf.Tensor, totals: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        has_part = (part < counts)[:, tf.newaxis]
        places = tf.minimum(firsts + part, tf.size(rows) - 1)
        part_translations = (tf.gather(texts, places), tf.gather(values, places))  # --> [num_lines, k]
        blanks = tf.gather(before, places)[:, tf.newaxis]
        joined_texts, sums = _COMBINE[mode]((line_texts, totals), part_translations, blanks)
        return part + 1, tf.where(has_part, joined_texts, line_texts), tf.where(has_part, sums, totals)

    most = tf.maximum(tf.reduce_max(counts), 0)
    slots = tf.TensorShape([None, k])
    _, texts, totals = tf.while_loop(
        lambda part, *_: part < most,
        add_part,
        (tf.constant(0), no_text, totals),
        shape_invariants=(tf.TensorShape([]), slots, slots),
    )
    if mode == "ranks":  # a blank line has one translation, unlike other lines with k samples
        has_slot = (counts > 0)[:, tf.newaxis] | (tf.range(k) == 0)
        totals = tf.where(has_slot, totals, -float("inf"))
    values = tf.where(totals > _MISSING, tf.cast(totals, tf.float32), LOWEST)
    return Hypotheses(tf.where(totals > -float("inf"), texts, ""), values)


def _pack(texts: tf.Tensor, values: tf.Tensor, exists: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Moves unused slots to the end, with value -inf; a part without translations gets `_MISSING` in its first slot."""
    order = tf.argsort(tf.cast(~exists, tf.int32), axis=1, stable=True)
    values = tf.where(exists, values, -float("inf"))
    texts, values = (tf.gather(part, order, batch_dims=1) for part in (tf.where(exists, texts, ""), values))
    first = tf.range(texts.shape[1]) == 0
    is_missing = ~tf.reduce_any(exists, axis=1, keepdims=True)
    return texts, tf.where(is_missing & first, tf.constant(_MISSING, values.dtype), values)


_Slots = tuple[tf.Tensor, tf.Tensor]  # texts and values, [num_lines, k] each


def _combine_sums(lines: _Slots, part: _Slots, before: tf.Tensor) -> _Slots:
    """Returns the best combinations of the lines so far with the next part; ties keep their order."""
    k = part[0].shape[1]
    sums = lines[1][:, :, tf.newaxis] + part[1][:, tf.newaxis, :]
    sums, choices = tf.math.top_k(tf.reshape(sums, [-1, k * k]), k)  # --> [num_lines, k]
    texts = (tf.gather(lines[0], choices // k, batch_dims=1), tf.gather(part[0], choices % k, batch_dims=1))
    return _join_texts(texts[0], before, texts[1]), _bound(sums)


def _combine_ranks(lines: _Slots, part: _Slots, before: tf.Tensor) -> _Slots:
    """Joins each translation of the lines so far with the next part's translation of the same rank."""
    return _join_texts(lines[0], before, part[0]), _bound(lines[1] + part[1])


def _combine_best(lines: _Slots, part: _Slots, before: tf.Tensor) -> _Slots:
    """Returns the best translations among the lines so far and the next part; ties keep their order."""
    del before
    texts, values = (tf.concat(pair, axis=1) for pair in zip(lines, part, strict=True))  # --> [num_lines, 2 k]
    values, choices = tf.math.top_k(values, lines[0].shape[1])
    return tf.gather(texts, choices, batch_dims=1), values


_COMBINE = {"sums": _combine_sums, "ranks": _combine_ranks, "best": _combine_best}


def _bound(sums: tf.Tensor) -> tf.Tensor:
    """Makes all sums that include a missing part equal, as if its value were minus infinity."""
    return tf.where(sums > -float("inf"), tf.maximum(sums, tf.constant(_MISSING, sums.dtype)), sums)


def _join_texts(text: tf.Tensor, before: tf.Tensor, following: tf.Tensor) -> tf.Tensor:
    """Joins two texts with white space, which is dropped if it is a single blank and one of the texts is empty."""
    is_left_out = (before == " ") & ((text == "") | (following == ""))
    return tf.strings.join([text, tf.where(is_left_out, "", before), following])
