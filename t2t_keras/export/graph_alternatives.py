"""Other words at a place of a translation, in the graph: what it becomes with each of the likeliest next tokens."""

import functools
from typing import NamedTuple

import tensorflow as tf

from t2t_keras.export.graph_pipeline import Parts, Pipeline, Sentences
from t2t_keras.export.graph_sentences import FoundSentences, find_sentences
from t2t_keras.export.graph_text import repaired, stripped
from t2t_keras.export.joining import LOWEST
from t2t_keras.export.limits import assert_as_many_lines, assert_line_lengths
from t2t_keras.symbols import PAD_ID

# How many are offered at a place. Some tokens begin the same word, so that there are fewer words.
COUNT = 8
# Begins a sentence in any language.
_NEXT = "A"


def alternatives_signature(pipeline: Pipeline) -> dict[str, tf.types.experimental.GenericFunction]:
    """The function `alternatives`, by name; nothing where no output can be told how it begins; see `signatures`."""
    if not pipeline.may_be_told:
        return {}
    specs = [tf.TensorSpec([None], tf.string, name) for name in ("text", "prefix")]
    alternatives = functools.partial(_alternatives, pipeline)
    return {"alternatives": tf.function(alternatives, input_signature=specs, autograph=False)}


class _Place(NamedTuple):
    """The sentence of each line that continues a given beginning.

    Attributes:
        before: string [lines], the beginning of the line's translation up to the sentence.
        text: string [lines], the sentence.
        prefix: string [lines], how its translation begins.
        blank: string [lines], what stands behind it.
        rest: the sentences behind it.
    """

    before: tf.Tensor
    text: tf.Tensor
    prefix: tf.Tensor
    blank: tf.Tensor
    rest: FoundSentences


def _place(pipeline: Pipeline, text: tf.Tensor, prefix: tf.Tensor) -> _Place:
    """The sentence of each line, string [lines], in whose translation a beginning, string [lines], ends.

    The translation of each sentence is taken to be one sentence.
    """
    # What comes next begins the next sentence if it can.
    begun = find_sentences(tf.strings.join([prefix, f" {_NEXT}"]), pipeline.data.target_language)
    sources = pipeline.sentences_of(text)
    (numbers, counts), (begun_numbers, begun_counts) = (_numbers(each, text) for each in (sources, begun))
    current = tf.maximum(tf.minimum(counts, begun_counts) - 1, 0)  # --> [lines]
    distances = numbers - tf.gather(current, sources.rows)  # --> [sentences]
    begun_distances = begun_numbers - tf.gather(current, begun.rows)

    def of_lines(sentences: FoundSentences, is_chosen: tf.Tensor, *texts: tf.Tensor) -> tf.Tensor:
        """The texts of each line's chosen sentences, bool [sentences], in a row: string [lines]."""
        chosen = tf.where(is_chosen, tf.strings.join(texts), "")
        return tf.strings.unsorted_segment_join(chosen, sentences.rows, tf.size(text, out_type=tf.int64))

    inner = tf.where(begun_distances == 0, "", begun.before)
    current_prefix = of_lines(begun, begun_distances >= 0, inner, begun.texts)
    current_prefix = tf.strings.regex_replace(current_prefix, f" ?{_NEXT}$", "")
    blank = tf.where(
        current_prefix == "",
        of_lines(sources, distances == 0, sources.before),
        of_lines(begun, begun_distances == 0, begun.before),
    )
    is_behind = tf.where(distances > 0)[:, 0]
    rest = FoundSentences(*(tf.gather(values, is_behind) for values in sources))
    is_next = tf.gather(distances, is_behind) == 1
    return _Place(
        tf.strings.join([of_lines(begun, begun_distances < 0, begun.before, begun.texts), blank]),
        of_lines(sources, distances == 0, sources.texts),
        current_prefix,
        of_lines(sources, distances == 1, sources.before),
        rest._replace(before=tf.where(is_next, "", rest.before)),
    )


def _numbers(found: FoundSentences, lines: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The number of each sentence in its line, int64 [sentences], and how many each line has, int64 [lines]."""
    counts = tf.math.unsorted_segment_sum(tf.ones_like(found.rows), found.rows, tf.size(lines))
    return tf.ragged.range(counts).flat_values, counts


def _alternatives(pipeline: Pipeline, text: tf.Tensor, prefix: tf.Tensor) -> dict[str, tf.Tensor]:
    """The best translations that begin with each prefix and continue with different tokens, which begin words.

    Of several sentences this is about the one in which the prefix ends: those before stay as the prefix has them, those
    behind are translated as ever. The scores are those of the one.
    """
    with tf.control_dependencies([assert_as_many_lines(text=text, prefix=prefix)]):
        text, prefix = tf.identity(text), tf.identity(prefix)
    if not pipeline.has_sentences:
        return _continuations(pipeline, text, prefix)
    place = _place(pipeline, text, prefix)
    outputs = _continuations(pipeline, place.text, place.prefix)
    parts = pipeline.parts_of_sentences(place.rest)
    found = pipeline.search(parts.sentences, only_best=True)
    rest = pipeline.hypotheses(text, parts, found, found.scores).texts[:, 0]
    behind = tf.strings.join([place.blank, rest])
    before, behind = (tf.repeat(values[:, tf.newaxis], COUNT, axis=1) for values in (place.before, behind))
    whole = tf.strings.join([before, outputs["translations"], behind])
    return {**outputs, "translations": tf.where(outputs["translations"] == "", "", whole)}


def _continuations(pipeline: Pipeline, text: tf.Tensor, prefix: tf.Tensor) -> dict[str, tf.Tensor]:
    """The best translations of texts, each in one piece."""
    count = tf.shape(text)[0]
    sources, begun = pipeline.sources(text), pipeline.beginnings(prefix)
    limit = pipeline.max_source_length
    with tf.control_dependencies([assert_line_lengths("text", sources.lengths, "translated with a prefix", limit)]):
        sources = Sentences(*map(tf.identity, sources))
    tokens = pipeline.next_tokens(sources, begun, COUNT)  # --> [lines, COUNT]
    several = Sentences(*(tf.repeat(side, COUNT, axis=0) for side in sources))
    prefixes = _with_tokens(begun, tokens)
    found = pipeline.search_for(several, prefix=prefixes)
    rows = tf.range(count * COUNT)
    parts = Parts(several, rows, tf.fill(tf.shape(rows), ""))
    made = pipeline.hypotheses(tf.repeat(text, COUNT), parts, found, found.scores)
    texts, values = (tf.reshape(each[:, 0], [count, COUNT]) for each in made)
    # A beginning needs room for a token and an end symbol.
    may_go_on = (stripped(repaired(text)) != "") & (begun.lengths < pipeline.output_limits(sources))
    is_there = (values > LOWEST) & (tokens != PAD_ID) & may_go_on[:, tf.newaxis]
    values = tf.where(is_there, values, LOWEST)
    order = tf.argsort(values, axis=1, direction="DESCENDING", stable=True)
    texts = tf.gather(tf.where(is_there, texts, ""), order, batch_dims=1)
    return {"translations": texts, "scores": tf.gather(values, order, batch_dims=1)}


def _with_tokens(begun: Sentences, tokens: tf.Tensor) -> tf.Tensor:
    """Each beginning with each of its tokens in the place of its end symbol: int32 [lines * COUNT, length]."""
    ends = tf.range(tf.shape(begun.ids)[1]) == begun.lengths[:, tf.newaxis] - 1  # --> [lines, length]
    filled = tf.where(ends[:, tf.newaxis], tokens[:, :, tf.newaxis], begun.ids[:, tf.newaxis])
    return tf.reshape(filled, [-1, tf.shape(begun.ids)[1]])
