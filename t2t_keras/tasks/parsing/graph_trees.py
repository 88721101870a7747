"""Trees from whatever a model wrote, and what it should write for trees: `linear_trees` in the graph, for a batch."""

import tensorflow as tf

from t2t_keras.tasks.parsing.linear_trees import OPENING, UNKNOWN
from t2t_keras.tasks.parsing.trees import NAME, TOP, TRACE


def finished_in_graph(sources: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """The trees of linearised trees over the words of sources, in brackets: string [batch] each.

    A token of an output has a place; what closes or opens there, and how deep, follows from sums over places.
    """
    words = tf.strings.split(sources, " ")  # --> [batch, ragged]
    words = tf.ragged.boolean_mask(words, words != "")
    tokens = tf.strings.split(outputs, " ").to_tensor("")  # --> [batch, places]
    num_words = tf.cast(words.row_lengths(), tf.int32)[:, tf.newaxis]
    is_word = tf.strings.regex_full_match(tokens, NAME)
    count = tf.cumsum(tf.cast(is_word, tf.int32), axis=1)
    is_word &= count <= num_words
    opens = tf.strings.regex_full_match(tokens, OPENING)
    closes = tf.strings.regex_full_match(tokens, r"(?s)\).*")
    opens, closes, depth_before, depth = _balanced(opens, closes)
    opens &= _holds_a_word(depth, is_word, depth, reverse=True)
    closes &= _holds_a_word(depth, is_word, depth_before, reverse=False)

    escaped = tf.ragged.map_flat_values(_escaped, words).to_tensor("", shape=[None, None])
    escaped = tf.pad(escaped, [[0, 0], [0, 1]], constant_values="")  # a batch may have no word at all
    at = tf.clip_by_value(count - 1, 0, tf.maximum(num_words - 1, 0))
    tags = tf.where(tokens == TRACE, UNKNOWN, tokens)
    own_leaves = tf.strings.join([" (", tags, " ", tf.gather(escaped, at, batch_dims=1), ")"])
    written = tf.where(opens, tf.strings.join([" ", tokens]), "")
    written = tf.where(is_word, own_leaves, tf.where(closes, ")", written))  # --> [batch, places]

    used = tf.reduce_sum(tf.cast(is_word, tf.int32), axis=1)  # --> [batch]
    place = tf.range(tf.shape(escaped)[1])
    is_missing = (place >= used[:, tf.newaxis]) & (place < num_words)
    missing = tf.where(is_missing, tf.strings.join([f" ({UNKNOWN} ", escaped, ")"]), "")
    missing = tf.strings.reduce_join(missing, axis=1)
    kept = opens | closes | is_word
    still_open = tf.reduce_sum(tf.cast(opens, tf.int32) - tf.cast(closes, tf.int32), axis=1)
    place = tf.range(tf.shape(tokens)[1])
    last = tf.reduce_max(tf.where(kept, place, -1), axis=1)  # --> [batch]
    # The last outermost constituent takes the missing words: it is open still, or its end goes behind them.
    reopened = (still_open == 0) & tf.reduce_any(closes & (place == last[:, tf.newaxis]), axis=1)
    written = tf.where(reopened[:, tf.newaxis] & (place == last[:, tf.newaxis]), "", written)
    inner = tf.where(tf.sequence_mask(tf.maximum(still_open - 1, 0)), ")", "")
    inner = tf.strings.reduce_join(inner, axis=1)  # --> [batch]
    outermost = tf.where(reopened | (still_open > 0), ")", "")
    body = tf.strings.reduce_join(written, axis=1)
    return tf.strings.join([f"({TOP}", body, inner, missing, outermost, ")"])


def linearised_in_graph(trees: tf.Tensor) -> tf.Tensor:
    """`linear_trees.linearised` of trees in brackets, string [batch] each."""
    texts = tf.strings.regex_replace(trees, r"\(([^ ()]+) [^ ()]+\)", r" \1 ")
    texts = tf.strings.regex_replace(texts, rf"^ *\((?:{TOP})?(?: (.*))?\) *$", r"\1")
    texts = tf.strings.regex_replace(tf.strings.regex_replace(texts, r"\(", " ("), r"\)", " ) ")
    tokens = tf.strings.split(texts).to_tensor("")  # --> [batch, places]
    opens, closes = tf.strings.regex_full_match(tokens, r"\(.+"), tokens == ")"
    depth = tf.cumsum(tf.cast(opens, tf.int32) - tf.cast(closes, tf.int32), axis=1)
    places = tf.shape(tokens)[1]
    level = tf.where(opens, depth, tf.where(closes, depth + 1, places + 1))
    # Of the brackets of one level in their order, what opens stands in front of what closes it.
    order = tf.argsort(level * places + tf.range(places), axis=1)
    brackets = tf.gather(tokens, order, batch_dims=1)
    opened = tf.strings.regex_replace(tf.roll(brackets, 1, axis=1), r"^\(", ")")
    named = tf.gather(tf.where(brackets == ")", opened, brackets), tf.argsort(order, axis=1), batch_dims=1)
    return tf.strings.strip(tf.strings.reduce_join(named, axis=1, separator=" "))


def _escaped(words: tf.Tensor) -> tf.Tensor:
    return tf.strings.regex_replace(tf.strings.regex_replace(words, r"\(", "-LRB-"), r"\)", "-RRB-")


def _balanced(opens: tf.Tensor, closes: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Drops what closes where nothing is open; returns opens, closes, and the depth before and after each place."""
    change = tf.cast(opens, tf.int32) - tf.cast(closes, tf.int32)

    def step(state: tuple[tf.Tensor, tf.Tensor], change: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return state[1], tf.maximum(state[1] + change, 0)

    start = tf.zeros([tf.shape(change)[0]], tf.int32)
    before, after = tf.scan(step, tf.transpose(change), (start, start))  # --> [places, batch] each
    before, after = tf.transpose(before), tf.transpose(after)
    return opens, closes & (before > 0), before, after


def _holds_a_word(depth: tf.Tensor, is_word: tf.Tensor, wanted: tf.Tensor, reverse: bool) -> tf.Tensor:
    """Whether the lowest depth between a place and the nearest word, after it if `reverse`, is at least `wanted`."""

    def step(lowest: tf.Tensor, place: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        depth, is_word = place
        return tf.where(is_word, depth, tf.minimum(lowest, depth))

    start = tf.fill([tf.shape(depth)[0]], -1)
    lowest = tf.scan(step, (tf.transpose(depth), tf.transpose(is_word)), start, reverse=reverse)
    lowest = tf.transpose(lowest)  # --> [batch, places]
    if reverse:
        return lowest >= wanted
    before = tf.concat([start[:, tf.newaxis], lowest[:, :-1]], axis=1)
    return before >= wanted
