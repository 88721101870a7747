"""Splits texts into sentences in the graph, with the rules of `t2t_keras.text.sentences`."""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras.export.graph_text import printable, re2, stripped
from t2t_keras.text.sentences import BOUNDARY, CANDIDATE, WHITE_SPACE, rules


class SentenceTexts(NamedTuple):
    """The sentences of texts, in order.

    Attributes:
        texts: string [sentences], none of them blank.
        before: string [sentences], the white space between the previous sentence of the text and this one.
        rows: int64 [sentences], the index of the text that contains the sentence.
        is_first: bool [sentences], whether the sentence is the first of its text.
    """

    texts: tf.Tensor
    before: tf.Tensor
    rows: tf.Tensor
    is_first: tf.Tensor

    def with_heads(self, head_end: str) -> "SentenceTexts":
        """Puts the head of each text's first sentence in front of the text's other sentences.

        `head_end` is the result of `inference.request.head_end`.
        """
        if not head_end:
            return self
        head_and_rest = f"(?s)({re2(head_end)}).*"
        firsts = tf.gather(self.texts, tf.where(self.is_first)[:, 0])
        has_head = tf.strings.regex_full_match(firsts, head_and_rest)
        heads = tf.where(has_head, tf.strings.regex_replace(firsts, head_and_rest, "\\1 "), "")
        heads = tf.gather(heads, tf.cumsum(tf.cast(self.is_first, tf.int32)) - 1)  # --> [sentences]
        return self._replace(texts=tf.strings.join([tf.where(self.is_first, "", heads), self.texts]))


def find_sentences(texts: tf.Tensor, language: str, blank: str = "") -> SentenceTexts:
    """Splits texts, string [texts], into sentences, as `sentences.find_sentences` does.

    If no white space separates two sentences, `before` of the second one is `blank`.
    """
    texts = stripped(printable(texts))
    is_candidate = tf.strings.regex_full_match(texts, f"(?s:.*)(?:{re2(CANDIDATE.pattern)})(?s:.*)")
    single = tf.where(~is_candidate & (texts != ""))[:, 0]

    def with_candidates() -> tuple[tf.Tensor, ...]:
        candidates = tf.where(is_candidate)[:, 0]
        splits = _split_sentences(tf.gather(texts, candidates), language, blank)
        rows = tf.concat([single, tf.gather(candidates, splits.rows)], axis=0)
        order = tf.argsort(rows, stable=True)
        columns = (tf.concat(pair, axis=0) for pair in zip(_single_sentences(texts, single), splits, strict=True))
        sentences, before, _, is_first = (tf.gather(values, order) for values in columns)
        return sentences, before, tf.gather(rows, order), is_first

    return SentenceTexts(
        *tf.cond(tf.reduce_any(is_candidate), with_candidates, lambda: tuple(_single_sentences(texts, single)))
    )


def _single_sentences(texts: tf.Tensor, rows: tf.Tensor) -> SentenceTexts:
    """Returns the texts at `rows` as one sentence each."""
    return SentenceTexts(tf.gather(texts, rows), tf.fill(tf.shape(rows), ""), rows, tf.fill(tf.shape(rows), True))


def _split_sentences(texts: tf.Tensor, language: str, blank: str) -> SentenceTexts:
    """Splits texts that have neither invisible characters nor surrounding white space."""
    for pattern, replacement in rules(language):
        texts = tf.strings.regex_replace(texts, re2(pattern), replacement)
    pieces = tf.strings.split(texts, BOUNDARY)  # --> [texts, ragged]
    places = tf.where(pieces.flat_values != "")[:, 0]
    rows = tf.gather(pieces.value_rowids(), places)
    is_first = tf.concat([[True], rows[1:] != rows[:-1]], axis=0)[: tf.size(rows)]
    before, sentences = (
        tf.strings.regex_replace(tf.gather(pieces.flat_values, places), f"^({re2(WHITE_SPACE)}*)((?s:.*))$", group)
        for group in ("\\1", "\\2")
    )
    before = tf.where((before == "") & ~is_first, blank, before)
    return SentenceTexts(sentences, before, rows, is_first)
