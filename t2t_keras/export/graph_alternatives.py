"""Other words at a place of a translation, in the graph: what it becomes with each of the likeliest next tokens."""

import functools

import tensorflow as tf

from t2t_keras.export.graph_pipeline import Parts, Pipeline, Sentences
from t2t_keras.export.graph_text import repaired, stripped
from t2t_keras.export.joining import LOWEST
from t2t_keras.export.limits import assert_as_many_lines, assert_line_lengths
from t2t_keras.symbols import PAD_ID

# How many are offered at a place. Some tokens begin the same word, so that there are fewer words.
COUNT = 8


def alternatives_signature(pipeline: Pipeline) -> dict[str, tf.types.experimental.GenericFunction]:
    """The function `alternatives`, by name; nothing where no output can be told how it begins; see `signatures`."""
    if not pipeline.may_be_told:
        return {}
    specs = [tf.TensorSpec([None], tf.string, name) for name in ("text", "prefix")]
    alternatives = functools.partial(_alternatives, pipeline)
    return {"alternatives": tf.function(alternatives, input_signature=specs, autograph=False)}


def _alternatives(pipeline: Pipeline, text: tf.Tensor, prefix: tf.Tensor) -> dict[str, tf.Tensor]:
    """The best translations that begin with each prefix and go on with different tokens, which begin words."""
    count = tf.shape(text)[0]
    with tf.control_dependencies([assert_as_many_lines(text=text, prefix=prefix)]):
        sources, begun = pipeline.sources(tf.identity(text)), pipeline.beginnings(tf.identity(prefix))
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
