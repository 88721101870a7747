"""The state of a search, and functions that move hypotheses in it.

Axes: batch (sentences), beam (hypotheses per sentence), open (sentences that the step function still works on). The
step function works on N = open * beam rows, in which the hypotheses of a sentence are adjacent.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.models.contract import Cache
from t2t_keras.search.scoring import should_remove_done
from t2t_keras.symbols import PAD_ID

DEAD = -float("inf")  # log-probability and score of an empty slot


class Active(NamedTuple):
    """The best hypotheses without an end symbol, best first.

    Attributes:
        token_ids: int32 [batch, beam], the newest token.
        log_probs: float32 [batch, beam], total log-probability; DEAD in an empty slot.
    """

    token_ids: tf.Tensor
    log_probs: tf.Tensor


class Finished(NamedTuple):
    """The best hypotheses with an end symbol, best score first.

    Attributes:
        scores: float32 [batch, beam]; DEAD in an empty slot.
        log_probs: float32 [batch, beam], total log-probability.
        lengths: int32 [batch, beam], number of tokens, end symbol included; 0 in an empty slot.
        parents: int32 [batch, beam], slot of the active hypothesis to which the end symbol was appended.
    """

    scores: tf.Tensor
    log_probs: tf.Tensor
    lengths: tf.Tensor
    parents: tf.Tensor


class History(NamedTuple):
    """The tokens of the active hypotheses, as a tree of back pointers.

    Attributes:
        token_ids: int32 [steps, batch, beam], the token that each step appended in each slot.
        parents: int32 [steps, batch, beam], slot, one step earlier, of the hypothesis to which it was appended.
    """

    token_ids: tf.Tensor
    parents: tf.Tensor


class Tracked(NamedTuple):
    """Tensors of the open sentences that options need besides the model's cache.

    Each field is a tuple of one tensor, or empty if no option needs it.

    Attributes:
        texts: int32 [open, beam, length], the start symbol and the earlier tokens of the active hypotheses.
        prefixes: int32 [open, prefix_len]; see `Goal`.
        constraints: int32 [open, constraints, phrases, phrase_len].
        excluded: int32 [open, phrases, phrase_len].
    """

    texts: tuple[tf.Tensor, ...] = ()
    prefixes: tuple[tf.Tensor, ...] = ()
    constraints: tuple[tf.Tensor, ...] = ()
    excluded: tuple[tf.Tensor, ...] = ()


class SearchState(NamedTuple):
    """The state of a search between two steps.

    Attributes:
        length: int32 scalar, number of steps made, which is the number of tokens of every active hypothesis.
        done: bool [batch], whether the sentence's result is final.
        active: the active hypotheses.
        finished: the finished hypotheses.
        num_finished: int32 [batch], number of hypotheses that have finished, including dropped ones; 0 without
            patience.
        history: the tokens of the active hypotheses.
        open_sentences: int32 [open], batch indices of the sentences in the caches: all that are not done, and possibly
            some that are.
        cache: the step function's cache, in the order of `open_sentences` and `active`.
        tracked: tensors that options need, in the same order.
        coverage_scores: empty, or one tensor, float32 [batch, beam], of the active hypotheses.
    """

    length: tf.Tensor
    done: tf.Tensor
    active: Active
    finished: Finished
    num_finished: tf.Tensor
    history: History
    open_sentences: tf.Tensor
    cache: Cache
    tracked: Tracked
    coverage_scores: tuple[tf.Tensor, ...] = ()


def start_state(cache: Cache, tracked: Tracked, max_lengths: tf.Tensor, beam_size: int) -> SearchState:
    """Returns the state before the first step, with one empty active hypothesis per sentence.

    `max_lengths` is int32 [batch].
    """
    shape = [tf.shape(max_lengths)[0], beam_size]
    steps = tf.maximum(tf.reduce_max(max_lengths), 0)  # the maximum over an empty batch is negative
    empty = tf.zeros([steps, *shape], tf.int32)
    first_alive = tf.where(tf.range(beam_size) == 0, 0.0, DEAD)  # otherwise copies would fill the beam
    return SearchState(
        length=tf.constant(0),
        done=max_lengths <= 0,
        active=Active(tf.fill(shape, PAD_ID), tf.broadcast_to(first_alive, shape)),
        finished=Finished(
            tf.fill(shape, DEAD), tf.fill(shape, DEAD), tf.zeros(shape, tf.int32), tf.zeros(shape, tf.int32)
        ),
        num_finished=tf.zeros(shape[:1], tf.int32),
        history=History(empty, empty),
        open_sentences=tf.range(shape[0]),
        cache=cache,
        tracked=tracked,
    )


def row_invariant(value: tf.Tensor) -> tf.TensorShape:
    """Returns the shape invariant of a value for any number of sentences; scalars keep their shape."""
    return tf.TensorShape([None, *value.shape[1:]]) if value.shape.rank else value.shape


def growth_invariant(value: tf.Tensor) -> tf.TensorShape:
    """Returns the shape invariant of a value for any number of sentences, with axes of length 0 free to grow."""
    return tf.TensorShape([size or None for size in row_invariant(value)])


def cache_invariants(cache: Cache) -> Cache:
    """Returns shape invariants of a step function's cache for `tf.while_loop`."""
    growing = {"per_hypothesis": cache.per_hypothesis, "per_sentence": cache.per_sentence}
    invariants = tf.nest.map_structure(row_invariant, cache)
    return invariants._replace(**tf.nest.map_structure(growth_invariant, growing))


def state_invariants(state: SearchState) -> SearchState:
    """Returns shape invariants of the state for `tf.while_loop`."""
    steps = tf.TensorShape([None, None, state.active.log_probs.shape[1]])
    return tf.nest.map_structure(row_invariant, state)._replace(
        history=History(steps, steps),
        cache=cache_invariants(state.cache),
        tracked=tf.nest.map_structure(growth_invariant, state.tracked),
    )


def gather_slots(values: Any, slots: tf.Tensor) -> Any:
    """Gathers slots, int32 [batch, picked], from each tensor [batch, slots, ...] of a nest."""
    return tf.nest.map_structure(lambda value: tf.gather(value, slots, batch_dims=1), values)


def scatter_rows(values: tf.Tensor, sentences: tf.Tensor, like: tf.Tensor, default: float | int) -> tf.Tensor:
    """Scatters rows [open, width] to the indices `sentences` of a new batch, and fills all other rows with `default`.

    The new batch has as many rows as `like`.
    """
    empty = tf.fill([tf.shape(like)[0], values.shape[1]], tf.constant(default, values.dtype))
    return tf.tensor_scatter_nd_update(empty, sentences[:, tf.newaxis], values)


def move_caches(state: SearchState, parents: tf.Tensor) -> SearchState:
    """Reorders caches and texts like their hypotheses.

    Args:
        state: the state after a step, but with caches and texts in the order before it.
        parents: int32 [batch, beam], slots of the hypotheses before the step.
    """
    if parents.shape[1] == 1:
        return state
    open_parents = tf.gather(parents, state.open_sentences)  # --> [open, beam]
    coverage = state.cache.coverage
    if coverage.shape[2] != 0:
        coverage = gather_slots(coverage, open_parents)
    per_hypothesis, texts = gather_slots((state.cache.per_hypothesis, state.tracked.texts), open_parents)
    return state._replace(
        cache=state.cache._replace(per_hypothesis=per_hypothesis, coverage=coverage),
        tracked=state.tracked._replace(texts=texts),
    )


def make_steps(
    is_running: Callable[..., tf.Tensor], step: Callable[..., SearchState], state: SearchState, num_groups: int = 1
) -> SearchState:
    """Computes `tf.while_loop(is_running, step, state)`, removing sentences that are done on the way.

    Two loops are nested, as in a greedy search. The inner loop makes steps, and the outer loop removes sentences that
    are done. Removing sentences copies the whole state, so it is not part of a step. In a diverse search, each group
    takes the place of a sentence in `state.done`, and a sentence is removed when all of its groups are done.
    """
    invariants = state_invariants(state)

    def is_open(state: SearchState) -> tf.Tensor:
        return ~tf.gather(sentences_done(state.done, num_groups), state.open_sentences)  # --> [open]

    def busy(*values: Any) -> tf.Tensor:
        open_flags = is_open(SearchState(*values))
        num_done = tf.size(open_flags) - tf.math.count_nonzero(open_flags, dtype=tf.int32)
        return is_running(*values) & ~should_remove_done(num_done, tf.size(open_flags))

    def run_round(*values: Any) -> SearchState:
        state = SearchState(*tf.while_loop(busy, step, SearchState(*values), invariants))
        places = tf.where(is_open(state))[:, 0]  # --> [open]
        tensors = (state.open_sentences, state.cache._replace(position=()), state.tracked)
        sentences, cache, tracked = tf.nest.map_structure(lambda value: tf.gather(value, places), tensors)
        cache = cache._replace(position=state.cache.position)
        return state._replace(open_sentences=sentences, cache=cache, tracked=tracked)

    return SearchState(*tf.while_loop(is_running, run_round, state, invariants))


def sentences_done(done: tf.Tensor, num_groups: int) -> tf.Tensor:
    """Returns whether all groups of each sentence are done: bool [batch * groups] --> [batch]."""
    return done if num_groups == 1 else tf.reduce_all(tf.reshape(done, [-1, num_groups]), axis=1)


def record_step(history: History, step: tf.Tensor, token_ids: tf.Tensor, parents: tf.Tensor) -> History:
    """Writes the token ids and parents of one step, int32 [batch, beam] each, into the history."""
    place = tf.reshape(step, [1, 1])
    return History(
        tf.tensor_scatter_nd_update(history.token_ids, place, token_ids[tf.newaxis]),
        tf.tensor_scatter_nd_update(history.parents, place, parents[tf.newaxis]),
    )


def trace_back(history: History, slots: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Reads the tokens of hypotheses out of a history, from the last token to the first.

    Args:
        history: the history, cut to the steps made.
        slots: int32 [batch, beam], slot of each hypothesis at its last token.
        lengths: int32 [batch, beam], number of tokens of each hypothesis.

    Returns:
        int32 [batch, beam, steps], padded with zeros.
    """

    def body(step: tf.Tensor, slots: tf.Tensor, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        is_inside = step < lengths
        tokens, parents = gather_slots((history.token_ids[step], history.parents[step]), slots)
        tokens = tf.where(is_inside, tokens, 0)
        texts = tf.tensor_scatter_nd_update(texts, tf.reshape(step, [1, 1]), tokens[tf.newaxis])
        return step - 1, tf.where(is_inside, parents, slots), texts

    last = tf.shape(history.token_ids)[0] - 1
    texts = tf.zeros_like(history.token_ids)
    *_, texts = tf.while_loop(lambda step, *_: step >= 0, body, (last, slots, texts))
    return steps_last(texts)


def steps_last(token_ids: tf.Tensor) -> tf.Tensor:
    """Transposes token ids, int32 [steps, batch, beam], to [batch, beam, steps].

    `tf.transpose` is avoided: it reports on standard error that oneDNN has no int32 kernel for it.
    """
    steps, batch, beam = tf.unstack(tf.shape(token_ids))
    hypotheses = tf.reshape(tf.range(batch * beam), [batch, beam, 1])
    transposed = tf.gather(tf.reshape(token_ids, [-1]), hypotheses + tf.range(steps) * (batch * beam))
    return tf.ensure_shape(transposed, [token_ids.shape[axis] for axis in (1, 2, 0)])
