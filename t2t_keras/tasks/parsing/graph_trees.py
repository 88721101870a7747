"""Converts trees to linearised trees and back, as `linear_trees` does, for batches in TensorFlow graphs."""

import tensorflow as tf

from t2t_keras.tasks.parsing.linear_trees import OPENING, UNKNOWN
from t2t_keras.tasks.parsing.trees import NAME, TOP

# The moves of the alignment by edit distance.
_NONE, _REPLACED, _DROPPED, _MISSING = range(4)


def finished_in_graph(sources: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """Computes `linear_trees.finished` for a batch.

    Which brackets open and close at each token, and at which depth, is computed by scans over the tokens.

    Args:
        sources: words separated by spaces, string [batch].
        outputs: linearised trees, possibly damaged, string [batch].

    Returns:
        Trees over the words of the sources in brackets, string [batch].
    """
    words = tf.strings.split(sources, " ")  # --> [batch, ragged]
    words = tf.ragged.boolean_mask(words, words != "")
    words = tf.ragged.map_flat_values(_escape, words)
    num_words = tf.cast(words.row_lengths(), tf.int32)[:, tf.newaxis]
    words = words.to_tensor("", shape=[None, None])
    tokens = tf.strings.split(outputs, " ").to_tensor("")  # --> [batch, places]
    is_word = tf.strings.regex_full_match(tokens, NAME)
    partners = _partners(tf.ragged.boolean_mask(tokens, is_word), words, num_words[:, 0])
    word_indices = tf.cumsum(tf.cast(is_word, tf.int32), axis=1) - 1
    partner = tf.gather(tf.pad(partners, [[0, 0], [0, 1]]), tf.maximum(word_indices, 0), batch_dims=1)
    is_word &= partner >= 0

    # An aligned word stands for the words of the sentence from its partner to before the next partner, and the first
    # one also for all words before its partner.
    starts = tf.ragged.boolean_mask(partners, partners >= 0)
    ends = tf.concat([starts[:, 1:], num_words], axis=1).to_tensor(0)
    number = tf.cumsum(tf.cast(is_word, tf.int32), axis=1) - 1
    last = tf.gather(ends, tf.maximum(number, 0), batch_dims=1)
    first = tf.where(number > 0, partner, 0)
    leaves = tf.strings.join([f" ({UNKNOWN} ", words, ")"])
    leaves = tf.where(tf.range(tf.shape(leaves)[1]) < num_words, leaves, "")
    offsets = tf.pad(tf.cumsum(tf.strings.length(leaves), axis=1), [[0, 0], [1, 0]])
    leaves = tf.strings.reduce_join(leaves, axis=1, keepdims=True)  # --> [batch, 1]
    begin, end = (tf.gather(offsets, tf.where(is_word, values, 0), batch_dims=1) for values in (first, last))
    new_leaves = tf.strings.substr(tf.broadcast_to(leaves, tf.shape(tokens)), begin, end - begin)

    opens = tf.strings.regex_full_match(tokens, OPENING)
    closes = tf.strings.regex_full_match(tokens, r"(?s)\).*")
    opens, closes, depth_before, depth = _balance(opens, closes)
    opens &= _holds_a_word(depth, is_word, depth, reverse=True)
    closes &= _holds_a_word(depth, is_word, depth_before, reverse=False)
    pieces = tf.where(opens, tf.strings.join([" ", tokens]), "")
    pieces = tf.where(closes, ")", pieces)
    pieces = tf.where(is_word, new_leaves, pieces)  # --> [batch, places]
    num_open = tf.reduce_sum(tf.cast(opens, tf.int32) - tf.cast(closes, tf.int32), axis=1)
    closing = tf.strings.reduce_join(tf.where(tf.sequence_mask(num_open), ")", ""), axis=1)
    all_leaves = tf.where(tf.reduce_any(is_word, axis=1), "", leaves[:, 0])
    return tf.strings.join([f"({TOP}", tf.strings.reduce_join(pieces, axis=1), closing, all_leaves, ")"])


def _partners(output_words: tf.RaggedTensor, words: tf.Tensor, num_words: tf.Tensor) -> tf.Tensor:
    """Computes `linear_trees.partners` for a batch.

    The table of edit distances of i written words to j words is computed one diagonal at a time: all entries with the
    same i + j.

    Args:
        output_words: the written words, string [batch, (output words)].
        words: the words of the sentences, string [batch, words].
        num_words: the number of words of each sentence, int32 [batch].

    Returns:
        The index of the partner of each written word, or -1, int32 [batch, output words].
    """
    num_written = tf.cast(output_words.row_lengths(), tf.int32)  # --> [batch]
    output_words = output_words.to_tensor("", shape=[None, None])
    num_words = tf.minimum(num_words, 2 * num_written)
    most_words = tf.reduce_max(tf.concat([num_words, [0]], axis=0))
    words = words[:, :most_words]
    batch, rows = tf.shape(output_words)[0], tf.shape(output_words)[1] + 1
    matches = output_words[:, :, tf.newaxis] == words[:, tf.newaxis]  # --> [batch, output words, words]
    matches = tf.pad(matches, [[0, 0], [1, 0], [1, 0]])  # --> [batch, output words + 1, words + 1]
    i = tf.range(rows)
    diagonals = tf.range(1, rows + most_words + 1)  # one more than necessary, so that it is not empty

    def step(state: tuple[tf.Tensor, ...], diagonal: tf.Tensor) -> tuple[tf.Tensor, ...]:
        second_last, last, _ = state  # distances for i + j - 2 and i + j - 1: [batch, output words + 1] each
        j = diagonal - i
        places = tf.broadcast_to(tf.clip_by_value(j, 0, most_words)[tf.newaxis, :, tf.newaxis], [batch, rows, 1])
        is_same = tf.gather(matches, places, batch_dims=2)[..., 0]
        replacement_cost = tf.roll(second_last, 1, axis=1) + tf.where(is_same, 0, 2)
        deletion_cost = tf.roll(last, 1, axis=1) + 1
        least = tf.minimum(tf.minimum(replacement_cost, deletion_cost), last + 1)
        move = tf.where(least == replacement_cost, _REPLACED, tf.where(least == deletion_cost, _DROPPED, _MISSING))
        at_edge = (i == 0) | (j == 0)
        return last, tf.where(at_edge, diagonal, least), tf.where(i == 0, _MISSING, tf.where(j == 0, _DROPPED, move))

    zeros = tf.zeros([batch, rows], tf.int32)
    _, _, moves = tf.scan(step, diagonals, (zeros, zeros, zeros))  # --> [diagonals, batch, output words + 1]

    def back(state: tuple[tf.Tensor, ...], diagonal: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, ...]:
        i, j, _ = state  # position on the way back: [batch] each
        number, moves = diagonal
        move = tf.where(i + j == number, tf.gather(moves, i, batch_dims=1), _NONE)
        i -= tf.cast((move == _REPLACED) | (move == _DROPPED), tf.int32)
        j -= tf.cast((move == _REPLACED) | (move == _MISSING), tf.int32)
        return i, j, move == _REPLACED

    start = (num_written, num_words, tf.zeros([batch], tf.bool))
    path_i, path_j, is_pair = tf.scan(back, (diagonals, moves), start, reverse=True)  # --> [diagonals, batch] each
    pairs = tf.where(is_pair)
    indices = tf.stack([tf.cast(pairs[:, 1], tf.int32), tf.gather_nd(path_i, pairs)], axis=1)
    return tf.scatter_nd(indices, tf.gather_nd(path_j, pairs) + 1, [batch, rows])[:, :-1] - 1


def linearised_in_graph(trees: tf.Tensor) -> tf.Tensor:
    """Computes `linear_trees.linearised` for trees in brackets, string [batch]; returns string [batch]."""
    texts = tf.strings.regex_replace(trees, r"\([^ ()]+ ([^ ()]+)\)", r" \1 ")
    texts = tf.strings.regex_replace(texts, rf"^ *\((?:{TOP})?(?: (.*))?\) *$", r"\1")
    texts = tf.strings.regex_replace(tf.strings.regex_replace(texts, r"\(", " ("), r"\)", " ) ")
    tokens = tf.strings.split(texts).to_tensor("")  # --> [batch, places]
    opens, closes = tf.strings.regex_full_match(tokens, r"\(.+"), tokens == ")"
    depth = tf.cumsum(tf.cast(opens, tf.int32) - tf.cast(closes, tf.int32), axis=1)
    places = tf.shape(tokens)[1]
    level = tf.where(opens, depth, tf.where(closes, depth + 1, places + 1))
    # In the order of levels and places, each closing bracket directly follows the bracket that it closes.
    order = tf.argsort(level * places + tf.range(places), axis=1)
    brackets = tf.gather(tokens, order, batch_dims=1)
    openers = tf.strings.regex_replace(tf.roll(brackets, 1, axis=1), r"^\(", ")")
    result = tf.gather(tf.where(brackets == ")", openers, brackets), tf.argsort(order, axis=1), batch_dims=1)
    return tf.strings.strip(tf.strings.reduce_join(result, axis=1, separator=" "))


def _escape(words: tf.Tensor) -> tf.Tensor:
    return tf.strings.regex_replace(tf.strings.regex_replace(words, r"\(", "-LRB-"), r"\)", "-RRB-")


def _balance(opens: tf.Tensor, closes: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Drops closing brackets where no bracket is open.

    Args:
        opens: whether a token opens a constituent, bool [batch, places].
        closes: whether a token closes a constituent, bool [batch, places].

    Returns:
        `opens` and the remaining `closes`, bool [batch, places], and the depth before and after each token, int32
        [batch, places].
    """
    change = tf.cast(opens, tf.int32) - tf.cast(closes, tf.int32)

    def step(state: tuple[tf.Tensor, tf.Tensor], change: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return state[1], tf.maximum(state[1] + change, 0)

    start = tf.zeros([tf.shape(change)[0]], tf.int32)
    before, after = tf.scan(step, tf.transpose(change), (start, start))  # --> [places, batch] each
    before, after = tf.transpose(before), tf.transpose(after)
    return opens, closes & (before > 0), before, after


def _holds_a_word(depth: tf.Tensor, is_word: tf.Tensor, limit: tf.Tensor, reverse: bool) -> tf.Tensor:
    """Returns whether there is a word between a bracket and its partner, for tokens that are brackets.

    This is the case if the depth does not fall below a limit between the bracket and the nearest word.

    Args:
        depth: depth after each token, int32 [batch, places].
        is_word: whether a token is a word with a partner, bool [batch, places].
        limit: the limit, int32 [batch, places].
        reverse: whether to look for the word after the token (for opening brackets) instead of before it (for closing
            brackets).

    Returns:
        bool [batch, places].
    """

    def step(lowest: tf.Tensor, place: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        depth, is_word = place
        return tf.where(is_word, depth, tf.minimum(lowest, depth))

    start = tf.fill([tf.shape(depth)[0]], -1)
    lowest = tf.scan(step, (tf.transpose(depth), tf.transpose(is_word)), start, reverse=reverse)
    lowest = tf.transpose(lowest)  # --> [batch, places]
    if reverse:
        return lowest >= limit
    previous_lowest = tf.concat([start[:, tf.newaxis], lowest[:, :-1]], axis=1)
    return previous_lowest >= limit
