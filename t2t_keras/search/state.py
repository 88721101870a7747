"""The state of a search, and how hypotheses move in it.

Axes: batch (sentences), beam (hypotheses per sentence), open (sentences that the step function still works on); N =
open * beam rows of the step function, the hypotheses of a sentence adjacent.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.models.contract import Cache
from t2t_keras.search.scoring import is_time_to_leave
from t2t_keras.symbols import PAD_ID

DEAD = -float("inf")  # log-probability and score of an empty slot


class Living(NamedTuple):
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
        lengths: int32 [batch, beam], tokens with the end symbol; 0 in an empty slot.
        parents: int32 [batch, beam], the slot of the living hypothesis that the end symbol was added to.
    """

    scores: tf.Tensor
    log_probs: tf.Tensor
    lengths: tf.Tensor
    parents: tf.Tensor


class History(NamedTuple):
    """The tokens of the living hypotheses, as a tree of back pointers.

    Attributes:
        token_ids: int32 [steps, batch, beam], the token that each step put into each slot.
        parents: int32 [steps, batch, beam], the slot, one step earlier, that it was added to.
    """

    token_ids: tf.Tensor
    parents: tf.Tensor


class Tracked(NamedTuple):
    """Tensors of open sentences besides the model's cache; each field is empty, or one tensor if options need it.

    Attributes:
        texts: int32 [open, beam, length], the start symbol and the living hypotheses' earlier tokens.
        prefixes: int32 [open, prefix_len]; see `Goal`.
        constraints: int32 [open, constraints, phrases, phrase_len].
        excluded: int32 [open, phrases, phrase_len].
    """

    texts: tuple[tf.Tensor, ...] = ()
    prefixes: tuple[tf.Tensor, ...] = ()
    constraints: tuple[tf.Tensor, ...] = ()
    excluded: tuple[tf.Tensor, ...] = ()


class SearchState(NamedTuple):
    """The state between two steps.

    Attributes:
        length: int32 scalar, tokens in every living hypothesis = steps made.
        done: bool [batch], sentences whose result is final.
        living: the living hypotheses.
        finished: the finished hypotheses.
        num_finished: int32 [batch], with patience, how many have finished, including those dropped later; else 0.
        history: the living hypotheses' earlier tokens.
        open_sentences: int32 [open], indices of the sentences in the caches: all that are not done, and perhaps others.
        cache: the step function's cache, in the order of `open_sentences` and `living`.
        tracked: the options' tensors, in the same order.
        coverage_scores: empty, or one float32 [batch, beam]: those of the living hypotheses.
    """

    length: tf.Tensor
    done: tf.Tensor
    living: Living
    finished: Finished
    num_finished: tf.Tensor
    history: History
    open_sentences: tf.Tensor
    cache: Cache
    tracked: Tracked
    coverage_scores: tuple[tf.Tensor, ...] = ()


def start_state(cache: Cache, tracked: Tracked, max_lengths: tf.Tensor, beam_size: int) -> SearchState:
    """The state before the first step, with one empty living hypothesis per sentence and the limits int32 [batch]."""
    shape = [tf.shape(max_lengths)[0], beam_size]
    steps = tf.maximum(tf.reduce_max(max_lengths), 0)  # an empty batch has no largest limit
    empty = tf.zeros([steps, *shape], tf.int32)
    first_alive = tf.where(tf.range(beam_size) == 0, 0.0, DEAD)  # identical hypotheses would fill the beam
    return SearchState(
        length=tf.constant(0),
        done=max_lengths <= 0,
        living=Living(tf.fill(shape, PAD_ID), tf.broadcast_to(first_alive, shape)),
        finished=Finished(
            tf.fill(shape, DEAD), tf.fill(shape, DEAD), tf.zeros(shape, tf.int32), tf.zeros(shape, tf.int32)
        ),
        num_finished=tf.zeros(shape[:1], tf.int32),
        history=History(empty, empty),
        open_sentences=tf.range(shape[0]),
        cache=cache,
        tracked=tracked,
    )


def any_rows(value: tf.Tensor) -> tf.TensorShape:
    """The value's shape with any number of sentences; a scalar's shape is kept."""
    return tf.TensorShape([None, *value.shape[1:]]) if value.shape.rank else value.shape


def growing(value: tf.Tensor) -> tf.TensorShape:
    """The value's shape with any number of sentences, and with axes of length 0 free to grow."""
    return tf.TensorShape([size or None for size in any_rows(value)])


def cache_shapes(cache: Cache) -> Cache:
    """Shape invariants of a step function's cache for `tf.while_loop`."""
    shapes = tf.nest.map_structure(any_rows, cache)
    grow = {name: tf.nest.map_structure(growing, getattr(cache, name)) for name in ("per_hypothesis", "per_sentence")}
    return shapes._replace(**grow)


def state_shapes(state: SearchState) -> SearchState:
    """Shape invariants of the state for `tf.while_loop`."""
    steps = tf.TensorShape([None, None, state.living.log_probs.shape[1]])
    return tf.nest.map_structure(any_rows, state)._replace(
        history=History(steps, steps),
        cache=cache_shapes(state.cache),
        tracked=tf.nest.map_structure(growing, state.tracked),
    )


def gather_slots(values: Any, slots: tf.Tensor) -> Any:
    """Picks slots, int32 [batch, picked], of each tensor [batch, slots] of a nest."""
    return tf.nest.map_structure(lambda value: tf.gather(value, slots, batch_dims=1), values)


def spread(values: tf.Tensor, sentences: tf.Tensor, like: tf.Tensor, default: float | int) -> tf.Tensor:
    """Puts rows [open, width] at places `sentences` of a batch as large as that of `like`, and `default` elsewhere."""
    empty = tf.fill([tf.shape(like)[0], values.shape[1]], tf.constant(default, values.dtype))
    return tf.tensor_scatter_nd_update(empty, sentences[:, tf.newaxis], values)


def move_caches(state: SearchState, parents: tf.Tensor) -> SearchState:
    """Moves caches and texts along with their hypotheses.

    `state` is that after a step, except for its caches; `parents`, int32 [batch, beam], are the slots before the step.
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
    goes_on: Callable[..., tf.Tensor], step: Callable[..., SearchState], state: SearchState, num_groups: int = 1
) -> SearchState:
    """The state after all steps: `tf.while_loop(goes_on, step, state)`, and sentences that are done leave on the way.

    As in a greedy search the inner of two loops makes steps, and the outer one removes sentences that are done:
    removing takes the whole state along, so it is kept out of the steps. In a diverse search each group has the place
    of a sentence in `state.done`, and a sentence leaves when all of its groups are done.
    """
    shapes = state_shapes(state)

    def is_open(state: SearchState) -> tf.Tensor:
        return ~tf.gather(sentences_done(state.done, num_groups), state.open_sentences)  # --> [open]

    def busy(*values: Any) -> tf.Tensor:
        still_open = is_open(SearchState(*values))
        num_done = tf.size(still_open) - tf.math.count_nonzero(still_open, dtype=tf.int32)
        return goes_on(*values) & ~is_time_to_leave(num_done, tf.size(still_open))

    def one_round(*values: Any) -> SearchState:
        state = SearchState(*tf.while_loop(busy, step, SearchState(*values), shapes))
        places = tf.where(is_open(state))[:, 0]  # --> [open]
        kept = (state.open_sentences, state.cache._replace(position=()), state.tracked)
        sentences, cache, tracked = tf.nest.map_structure(lambda value: tf.gather(value, places), kept)
        cache = cache._replace(position=state.cache.position)
        return state._replace(open_sentences=sentences, cache=cache, tracked=tracked)

    return SearchState(*tf.while_loop(goes_on, one_round, state, shapes))


def sentences_done(done: tf.Tensor, num_groups: int) -> tf.Tensor:
    """The sentences all of whose groups are done: bool [batch * groups] --> [batch]."""
    return done if num_groups == 1 else tf.reduce_all(tf.reshape(done, [-1, num_groups]), axis=1)


def remember(history: History, step: tf.Tensor, token_ids: tf.Tensor, parents: tf.Tensor) -> History:
    """Writes one step, [batch, beam] each, into the history."""
    place = tf.reshape(step, [1, 1])
    return History(
        tf.tensor_scatter_nd_update(history.token_ids, place, token_ids[tf.newaxis]),
        tf.tensor_scatter_nd_update(history.parents, place, parents[tf.newaxis]),
    )


def trace_back(history: History, slots: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Reads texts, int32 [batch, beam, steps], from last token to first out of a history cut to the steps made.

    `slots` and `lengths` are int32 [batch, beam]: each text's slot after its last step, and its tokens; zeros follow.
    """

    def body(step: tf.Tensor, slots: tf.Tensor, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        inside = step < lengths
        tokens, parents = gather_slots((history.token_ids[step], history.parents[step]), slots)
        tokens = tf.where(inside, tokens, 0)
        texts = tf.tensor_scatter_nd_update(texts, tf.reshape(step, [1, 1]), tokens[tf.newaxis])
        return step - 1, tf.where(inside, parents, slots), texts

    last = tf.shape(history.token_ids)[0] - 1
    texts = tf.zeros_like(history.token_ids)
    *_, texts = tf.while_loop(lambda step, *_: step >= 0, body, (last, slots, texts))
    return steps_last(texts)


def steps_last(token_ids: tf.Tensor) -> tf.Tensor:
    """Transposes token ids, int32 [steps, batch, beam], to [batch, beam, steps].

    Not with `tf.transpose`, which reports on standard error that oneDNN has no int32 kernel for it.
    """
    steps, batch, beam = tf.unstack(tf.shape(token_ids))
    hypotheses = tf.reshape(tf.range(batch * beam), [batch, beam, 1])
    transposed = tf.gather(tf.reshape(token_ids, [-1]), hypotheses + tf.range(steps) * (batch * beam))
    return tf.ensure_shape(transposed, [token_ids.shape[axis] for axis in (1, 2, 0)])
