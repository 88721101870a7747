"""The signatures of an export: functions of batches of strings or token ids, with named inputs and outputs."""

import functools
from collections.abc import Callable

import tensorflow as tf

from t2t_keras.export.graph_alternatives import alternatives
from t2t_keras.export.graph_attention import parse_choice, pieces_of_queries_and_keys
from t2t_keras.export.graph_pipeline import Parts, Pipeline, Sentences, longest
from t2t_keras.export.graph_streaming import stream_signatures
from t2t_keras.export.joining import Hypotheses
from t2t_keras.export.limits import (
    assert_equal_line_counts,
    assert_line_lengths,
    assert_row_lengths,
    assert_size,
)
from t2t_keras.export.traceable import traceable_signature
from t2t_keras.export_contract import (
    ALIGN,
    ALTERNATIVES,
    ATTENTION,
    CONSTRAINED,
    LOWEST,
    MAX_LINE_TOKENS,
    NBEST,
    SAMPLE,
    SCORE,
    SERVING_DEFAULT,
    TOKENS,
)
from t2t_keras.symbols import PAD_ID

Outputs = dict[str, tf.Tensor]


def signatures(pipeline: Pipeline) -> dict[str, tf.types.experimental.GenericFunction]:
    """Returns all signatures of an export by name, not traced yet; `t2t_keras.export_contract` has their types.

    `ALIGN` and `ATTENTION` exist if the model offers its attention, `CONSTRAINED` if `Pipeline.supports_constraints`,
    `ALTERNATIVES` if `Pipeline.supports_prefix`, and `STREAM_BEGIN` and `STREAM_ADVANCE` if
    `Pipeline.supports_streaming`. The others always exist.
    """
    functions: dict[str, Callable[..., Outputs]] = {
        SERVING_DEFAULT: _best_translations,
        NBEST: _nbest_translations,
        SAMPLE: _samples,
        SCORE: _score,
        TOKENS: _translated_tokens,
    }
    if pipeline.supports_constraints:
        functions[CONSTRAINED] = _constrained_tokens
    if pipeline.has_attention:
        functions |= {ALIGN: _alignment, ATTENTION: _attention}
    if pipeline.supports_prefix:
        functions[ALTERNATIVES] = alternatives
    traceable = {name: traceable_signature(name, functools.partial(each, pipeline)) for name, each in functions.items()}
    return {**traceable, **stream_signatures(pipeline)}


def _best_translations(pipeline: Pipeline, text: tf.Tensor) -> Outputs:
    best = _translations(pipeline, text, only_best=True)
    return {"translation": best.texts[:, 0], "score": best.values[:, 0]}


def _nbest_translations(pipeline: Pipeline, text: tf.Tensor) -> Outputs:
    hypotheses = _translations(pipeline, text, only_best=False)
    return {"translations": hypotheses.texts, "scores": hypotheses.values}


def _samples(pipeline: Pipeline, text: tf.Tensor, seed: tf.Tensor) -> Outputs:
    """Draws one translation of each line, which depends only on the text and the seed."""
    with tf.control_dependencies([assert_equal_line_counts(text=text, seed=seed)]):
        parts = pipeline.parts(tf.identity(text))
    samples = pipeline.sample(parts.sentences, tf.gather(seed, parts.rows))
    outputs = pipeline.hypotheses(text, parts, samples, samples.log_probs)
    return {"translation": outputs.texts[:, 0], "log_probability": outputs.values[:, 0]}


def _translations(pipeline: Pipeline, text: tf.Tensor, only_best: bool) -> Hypotheses:
    parts = pipeline.parts(text)
    result = pipeline.search(parts.sentences, only_best)
    return pipeline.hypotheses(text, parts, result, result.scores)


def _score(pipeline: Pipeline, text: tf.Tensor, target: tf.Tensor) -> Outputs:
    with tf.control_dependencies([assert_equal_line_counts(text=text, target=target)]):
        sources, targets = pipeline.sources(tf.identity(text)), pipeline.targets(text, tf.identity(target))
    return {"log_probability": pipeline.log_probs(sources, targets), "token_count": targets.lengths}


def _translated_tokens(pipeline: Pipeline, source_ids: tf.Tensor, source_length: tf.Tensor) -> Outputs:
    return _constrained_tokens(pipeline, source_ids, source_length, None)


def _constrained_tokens(
    pipeline: Pipeline, source_ids: tf.Tensor, source_length: tf.Tensor, constraints: tf.Tensor | None
) -> Outputs:
    """Finds the best translations as token ids, under constraints if given; empty for a sentence of length 0."""
    inputs = {} if constraints is None else {"constraints": constraints}
    batch, width = tf.shape(source_ids)[0], tf.shape(source_ids)[1]
    limit = max(MAX_LINE_TOKENS, pipeline.max_source_length)
    checks = [
        assert_equal_line_counts(source_ids=source_ids, source_length=source_length, **inputs),
        assert_row_lengths("source_length", source_length, width),
        assert_line_lengths("source_ids", source_length, "translated", limit),
    ]
    with tf.control_dependencies(checks):
        source_ids, lengths = tf.identity(source_ids), tf.identity(source_length)
    ids = tf.where(tf.range(width) < lengths[:, tf.newaxis], source_ids, PAD_ID)
    rows = tf.cast(tf.where(lengths > 0)[:, 0], tf.int32)
    sentences = Sentences(tf.gather(ids, rows), tf.gather(lengths, rows))
    if constraints is None:
        result = pipeline.search(sentences, only_best=True)
    else:
        result = pipeline.search_constrained(sentences, tf.gather(constraints, rows))
    length = longest(result.lengths[:, 0])
    scores = tf.where(result.lengths > 0, result.scores, LOWEST)
    places = rows[:, tf.newaxis]
    return {
        "translation_ids": tf.scatter_nd(places, result.token_ids[:, 0, :length], [batch, length]),
        "translation_length": tf.scatter_nd(places, result.lengths[:, 0], [batch]),
        "score": tf.scatter_nd(places, scores[:, 0], [batch]),
    }


def _alignment(pipeline: Pipeline, text: tf.Tensor) -> Outputs:
    """Translates lines and returns the tokens' attention; a line's parts are concatenated, end symbols included."""
    num_lines = tf.size(text)
    parts = pipeline.parts(text)
    with tf.control_dependencies(_attention_checks(pipeline, parts, num_lines)):
        sources = Sentences(*map(tf.identity, parts.sentences))
    result = pipeline.search(sources, only_best=True)
    best = pipeline.hypotheses(text, parts, result, result.scores)
    target_lengths = result.lengths[:, 0]
    targets = Sentences(result.token_ids[:, 0, : longest(target_lengths)], target_lengths)
    attention = pipeline.attention(sources, targets)
    places = [_places(side.lengths, parts.rows, num_lines) for side in (targets, sources)]
    shape = [num_lines, *(longest(lengths) for _, lengths in places)]
    return {
        "translation": best.texts[:, 0],
        "score": best.values[:, 0],
        "source_pieces": _lines_of_pieces(pipeline.source_pieces, sources, places[1][1]),
        "target_pieces": _lines_of_pieces(pipeline.target_pieces, targets, places[0][1]),
        "attention": _lines_of_attention(
            attention, targets, sources, parts.rows, [first for first, _ in places], shape
        ),
    }


def _attention(pipeline: Pipeline, text: tf.Tensor, target: tf.Tensor, kind: tf.Tensor, layer: tf.Tensor) -> Outputs:
    """Returns the attention of given translations; lines are not split. A kind without layers gets weights of 0."""
    inputs = {"text": text, "target": target, "kind": kind, "layer": layer}
    with tf.control_dependencies([assert_equal_line_counts(**inputs)]):
        selection = parse_choice(tf.identity(kind), tf.identity(layer), pipeline.attention_sizes)
        sources, targets = pipeline.sources(tf.identity(text)), pipeline.targets(text, tf.identity(target))
    weights = pipeline.chosen_attention(sources, targets, selection)
    source_pieces = _lines_of_pieces(pipeline.source_pieces, sources, sources.lengths)
    target_pieces = _lines_of_pieces(pipeline.target_pieces, targets, targets.lengths)
    queries, keys = pieces_of_queries_and_keys(selection.kinds, source_pieces, target_pieces, targets.lengths)
    return {
        "query_pieces": queries,
        "key_pieces": keys,
        "attention": weights[:, :, : tf.shape(queries)[1], : tf.shape(keys)[1]],
        "num_layers": tf.gather(tf.constant(pipeline.attention_sizes.layers), selection.kinds),
    }


def _attention_checks(pipeline: Pipeline, parts: Parts, num_lines: tf.Tensor) -> list[tf.Operation]:
    """Returns assertions that reject overlong lines, and attention that is too large for the parts or for the lines."""
    sizes = [pipeline.output_limits(parts.sentences), parts.sentences.lengths]
    line_sizes = [tf.math.unsorted_segment_sum(lengths, parts.rows, num_lines) for lengths in sizes]
    return [
        assert_line_lengths("text", line_sizes[1], "aligned"),
        assert_size("attention", tf.size(parts.rows), *map(longest, sizes)),
        assert_size("attention", num_lines, *map(longest, line_sizes)),
    ]


def _places(lengths: tf.Tensor, rows: tf.Tensor, num_lines: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns each part's token offset in its line, int32 [parts], and each line's length, int32 [num_lines]."""
    line_lengths = tf.math.unsorted_segment_sum(lengths, rows, num_lines)
    line_starts = tf.cumsum(line_lengths, exclusive=True)
    return tf.cumsum(lengths, exclusive=True) - tf.gather(line_starts, rows), line_lengths


def _lines_of_pieces(pieces: Callable[[tf.Tensor], tf.Tensor], parts: Sentences, line_lengths: tf.Tensor) -> tf.Tensor:
    """Returns the vocabulary's entries of each line's tokens: string [num_lines, length], padded with ""."""
    ids = tf.boolean_mask(parts.ids, tf.sequence_mask(parts.lengths, tf.shape(parts.ids)[1]))
    return tf.RaggedTensor.from_row_lengths(pieces(ids), line_lengths).to_tensor("")


def _lines_of_attention(
    attention: tf.Tensor,
    targets: Sentences,
    sources: Sentences,
    rows: tf.Tensor,
    firsts: list[tf.Tensor],
    shape: list[tf.Tensor],
) -> tf.Tensor:
    """Joins the attention of parts into the attention of lines; weights between different parts of a line are 0.

    Args:
        attention: float32 [parts, target_len, source_len].
        targets: the targets of the parts.
        sources: the sources of the parts.
        rows: int32 [parts], the index of each part's line.
        firsts: the offsets of each part's target and source in its line, int32 [parts] each.
        shape: the shape of the result, [num_lines, target_len, source_len].
    """
    masks = [tf.sequence_mask(side.lengths, tf.shape(side.ids)[1]) for side in (targets, sources)]
    is_weight = masks[0][:, :, tf.newaxis] & masks[1][:, tf.newaxis, :]
    places = tf.cast(tf.where(is_weight), tf.int32)  # --> [weights, 3]
    part = places[:, 0]
    line_places = [tf.gather(rows, part), *(tf.gather(firsts[side], part) + places[:, side + 1] for side in (0, 1))]
    return tf.scatter_nd(tf.stack(line_places, axis=1), tf.boolean_mask(attention, is_weight), shape)
