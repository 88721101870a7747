"""A search that can be paused and resumed, in the graph, to show a translation while it grows."""

import functools
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.export.graph_pipeline import Parts, Pipeline, Sentences, longest
from t2t_keras.export.limits import assert_line_lengths
from t2t_keras.export.traceable import traceable_signature
from t2t_keras.export_contract import MAX_LINE_TOKENS, STREAM_ADVANCE, STREAM_BEGIN, state_name
from t2t_keras.search.beam_search import state_invariants
from t2t_keras.symbols import PAD_ID

Outputs = dict[str, tf.Tensor]


class _Stream(NamedTuple):
    """The state of the search for one text.

    Attributes:
        parts: the parts in which the text is translated.
        search: the state of the search for all parts.
    """

    parts: Parts
    search: Any


def stream_signatures(pipeline: Pipeline) -> dict[str, tf.types.experimental.GenericFunction]:
    """Returns `STREAM_BEGIN` and `STREAM_ADVANCE` by name; empty unless `pipeline.supports_streaming`."""
    if not pipeline.supports_streaming:
        return {}
    begin = traceable_signature(STREAM_BEGIN, functools.partial(_begin, pipeline))
    first = begin.get_concrete_function().structured_outputs
    shapes = tf.nest.flatten(tf.nest.map_structure(lambda tensor: tensor.shape, first.parts))
    shapes += tf.nest.flatten(state_invariants(first.search))
    specs = {
        state_name(number): tf.TensorSpec(shape, tensor.dtype, state_name(number))
        for number, (shape, tensor) in enumerate(zip(shapes, tf.nest.flatten(first), strict=True))
    }

    def stream_begin(text: tf.Tensor) -> Outputs:
        return dict(zip(specs, tf.nest.flatten(begin(text)), strict=True))

    def stream_advance(steps: tf.Tensor, *state: tf.Tensor) -> Outputs:
        stream, outputs = _advance(pipeline, tf.nest.pack_sequence_as(first, state), steps)
        return {**dict(zip(specs, tf.nest.flatten(stream), strict=True)), **outputs}

    return {
        STREAM_BEGIN: traceable_signature(STREAM_BEGIN, stream_begin),
        STREAM_ADVANCE: traceable_signature(STREAM_ADVANCE, stream_advance, *specs.values()),
    }


def _begin(pipeline: Pipeline, text: tf.Tensor) -> _Stream:
    """Returns the state before the first step.

    All parts form one batch. An assertion limits it to the larger of `tokens_per_batch` and `MAX_LINE_TOKENS` tokens.
    """
    parts = pipeline.parts(text)
    count, longest_part = tf.size(parts.rows), longest(parts.sentences.lengths)
    limit = max(pipeline.config.tokens_per_batch, MAX_LINE_TOKENS)
    with tf.control_dependencies([assert_line_lengths("text", count * longest_part, "streamed", limit)]):
        sentences = Sentences(*map(tf.identity, parts.sentences))
    return _Stream(parts._replace(sentences=sentences), pipeline.start(sentences))


def _advance(pipeline: Pipeline, stream: _Stream, steps: tf.Tensor) -> tuple[_Stream, Outputs]:
    """Returns the state after some steps, and the outputs, which show a part once all parts before it are final."""
    # The number of steps is bounded, so that a call ends even with an invalid state.
    steps = tf.clip_by_value(steps, 0, MAX_LINE_TOKENS)
    search, result, done = pipeline.advance(stream.parts.sentences, stream.search, steps)
    is_shown = tf.cumsum(tf.cast(~done, tf.int32), exclusive=True) == 0
    visible = result._replace(token_ids=tf.where(is_shown[:, tf.newaxis, tf.newaxis], result.token_ids, PAD_ID))
    parts = stream.parts._replace(before=tf.where(is_shown, stream.parts.before, ""))
    best = pipeline.hypotheses(tf.constant([""]), parts, visible, visible.scores)
    text, score = (tf.ensure_shape(values[:, 0], [1]) for values in best)
    outputs = {"translation": text, "score": score, "done": tf.reduce_all(done)}
    return _Stream(stream.parts, search), outputs
