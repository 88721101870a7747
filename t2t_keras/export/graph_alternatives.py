"""Alternative continuations of the beginning of a translation, in the graph: one for each likely next word."""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras.export.graph_pipeline import Parts, Pipeline, Sentences
from t2t_keras.export.graph_sentences import SentenceTexts, find_sentences
from t2t_keras.export.graph_text import repaired, stripped
from t2t_keras.export.limits import assert_equal_line_counts, assert_line_lengths
from t2t_keras.export_contract import LOWEST, NUM_ALTERNATIVES
from t2t_keras.symbols import PAD_ID

# A word that begins a sentence in any language.
_NEXT = "A"


class _Place(NamedTuple):
    """The sentence of each line in whose translation a given beginning ends.

    Attributes:
        before: string [lines], the given translations of the sentences before it, with the white space after them.
        text: string [lines], the sentence.
        prefix: string [lines], the given beginning of the sentence's translation.
        blank: string [lines], the white space after the sentence.
        rest: the sentences after it.
    """

    before: tf.Tensor
    text: tf.Tensor
    prefix: tf.Tensor
    blank: tf.Tensor
    rest: SentenceTexts


def _find_place(pipeline: Pipeline, text: tf.Tensor, prefix: tf.Tensor) -> _Place:
    """Finds the sentence of each line in whose translation the given beginning ends.

    It assumes that the translation of each sentence is one sentence.

    Args:
        pipeline: the pipeline.
        text: string [lines].
        prefix: string [lines], the beginning of each line's translation.
    """
    # With a word added, a beginning that ends with a whole sentence continues with the next one.
    beginnings = find_sentences(tf.strings.join([prefix, f" {_NEXT}"]), pipeline.data.target_language)
    sources = pipeline.sentences_of(text)
    (numbers, counts), (beginning_numbers, beginning_counts) = (_numbers(each, text) for each in (sources, beginnings))
    current = tf.maximum(tf.minimum(counts, beginning_counts) - 1, 0)  # --> [lines]
    distances = numbers - tf.gather(current, sources.rows)  # --> [sentences]
    beginning_distances = beginning_numbers - tf.gather(current, beginnings.rows)

    def join_lines(sentences: SentenceTexts, is_chosen: tf.Tensor, *texts: tf.Tensor) -> tf.Tensor:
        """Concatenates the texts of each line's chosen sentences, bool [sentences]: string [lines]."""
        chosen_texts = tf.where(is_chosen, tf.strings.join(texts), "")
        return tf.strings.unsorted_segment_join(chosen_texts, sentences.rows, tf.size(text, out_type=tf.int64))

    inner = tf.where(beginning_distances == 0, "", beginnings.before)
    current_prefix = join_lines(beginnings, beginning_distances >= 0, inner, beginnings.texts)
    current_prefix = tf.strings.regex_replace(current_prefix, f" ?{_NEXT}$", "")
    blank = tf.where(
        current_prefix == "",
        join_lines(sources, distances == 0, sources.before),
        join_lines(beginnings, beginning_distances == 0, beginnings.before),
    )
    later = tf.where(distances > 0)[:, 0]
    rest = SentenceTexts(*(tf.gather(values, later) for values in sources))
    is_next = tf.gather(distances, later) == 1
    return _Place(
        tf.strings.join([join_lines(beginnings, beginning_distances < 0, beginnings.before, beginnings.texts), blank]),
        join_lines(sources, distances == 0, sources.texts),
        current_prefix,
        join_lines(sources, distances == 1, sources.before),
        rest._replace(before=tf.where(is_next, "", rest.before)),
    )


def _numbers(sentences: SentenceTexts, lines: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns each sentence's index in its line, int64 [sentences], and each line's sentence count, int64 [lines]."""
    counts = tf.math.unsorted_segment_sum(tf.ones_like(sentences.rows), sentences.rows, tf.size(lines))
    return tf.ragged.range(counts).flat_values, counts


def alternatives(pipeline: Pipeline, text: tf.Tensor, prefix: tf.Tensor) -> dict[str, tf.Tensor]:
    """Finds the best translations that begin with a prefix and continue with each of the likeliest next words.

    In a line of several sentences, the alternatives are for the sentence in which the prefix ends, and the scores are
    those of this sentence. The translations of earlier sentences are taken from the prefix, and later sentences are
    translated as usual.
    """
    with tf.control_dependencies([assert_equal_line_counts(text=text, prefix=prefix)]):
        text, prefix = tf.identity(text), tf.identity(prefix)
    if not pipeline.has_sentences:
        return _continuations(pipeline, text, prefix)
    place = _find_place(pipeline, text, prefix)
    outputs = _continuations(pipeline, place.text, place.prefix)
    parts = pipeline.parts_of_sentences(place.rest)
    result = pipeline.search(parts.sentences, only_best=True)
    rest = pipeline.hypotheses(text, parts, result, result.scores).texts[:, 0]
    remainder = tf.strings.join([place.blank, rest])
    before, remainder = (
        tf.repeat(values[:, tf.newaxis], NUM_ALTERNATIVES, axis=1) for values in (place.before, remainder)
    )
    translations = tf.strings.join([before, outputs["translations"], remainder])
    return {**outputs, "translations": tf.where(outputs["translations"] == "", "", translations)}


def _continuations(pipeline: Pipeline, text: tf.Tensor, prefix: tf.Tensor) -> dict[str, tf.Tensor]:
    """Finds the alternatives of texts that are each translated in one piece."""
    count = tf.shape(text)[0]
    sources, beginnings = pipeline.sources(text), pipeline.beginnings(prefix)
    limit = pipeline.max_source_length
    with tf.control_dependencies([assert_line_lengths("text", sources.lengths, "translated with a prefix", limit)]):
        sources = Sentences(*map(tf.identity, sources))
    tokens = pipeline.next_tokens(sources, beginnings, NUM_ALTERNATIVES)  # --> [lines, alternatives]
    source_copies = Sentences(*(tf.repeat(side, NUM_ALTERNATIVES, axis=0) for side in sources))
    prefixes = _with_tokens(beginnings, tokens)
    result = pipeline.search_restricted(source_copies, prefix=prefixes)
    rows = tf.range(count * NUM_ALTERNATIVES)
    parts = Parts(source_copies, rows, tf.fill(tf.shape(rows), ""), tf.fill(tf.shape(rows), True))
    hypotheses = pipeline.hypotheses(tf.repeat(text, NUM_ALTERNATIVES), parts, result, result.scores)
    texts, values = (tf.reshape(each[:, 0], [count, NUM_ALTERNATIVES]) for each in hypotheses)
    # A translation can continue only if there is room for a token and an end symbol.
    can_continue = (stripped(repaired(text)) != "") & (beginnings.lengths < pipeline.output_limits(sources))
    exists = (values > LOWEST) & (tokens != PAD_ID) & can_continue[:, tf.newaxis]
    values = tf.where(exists, values, LOWEST)
    order = tf.argsort(values, axis=1, direction="DESCENDING", stable=True)
    texts = tf.gather(tf.where(exists, texts, ""), order, batch_dims=1)
    return {"translations": texts, "scores": tf.gather(values, order, batch_dims=1)}


def _with_tokens(beginnings: Sentences, tokens: tf.Tensor) -> tf.Tensor:
    """Replaces the end symbol of each beginning by each of its next tokens: int32 [lines * alternatives, length]."""
    ends = tf.range(tf.shape(beginnings.ids)[1]) == beginnings.lengths[:, tf.newaxis] - 1  # --> [lines, length]
    continuations = tf.where(ends[:, tf.newaxis], tokens[:, :, tf.newaxis], beginnings.ids[:, tf.newaxis])
    return tf.reshape(continuations, [-1, tf.shape(beginnings.ids)[1]])
