"""What a search carries from step to step, and the moves that beams make.

Axes: batch (sentences), beam (hypotheses a sentence), open (sentences that the step
function still works on), N = open * beam rows as the step function sees them, the
beams of a sentence side by side.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.models.contract import Cache
from t2t_keras.search.leaving import is_time_to_leave

DEAD = -float("inf")  # the log-probability and the score of a slot that holds no hypothesis


class Living(NamedTuple):
    """The best hypotheses without an end symbol, best first.

    Attributes:
        token_ids: [batch, beam] int32, the newest token of each.
        log_probs: [batch, beam] float32, the total of each; DEAD in a slot without one.
    """

    token_ids: tf.Tensor
    log_probs: tf.Tensor


class Finished(NamedTuple):
    """The best hypotheses with an end symbol, best score first.

    Attributes:
        scores: [batch, beam] float32, normalised; DEAD in a slot without one.
        log_probs: [batch, beam] float32, the total of each.
        lengths: [batch, beam] int32, the end symbol counted; 0 in a slot without one.
        parents: [batch, beam] int32, the slot of the living hypothesis that the end symbol was added to.
    """

    scores: tf.Tensor
    log_probs: tf.Tensor
    lengths: tf.Tensor
    parents: tf.Tensor


class History(NamedTuple):
    """Where the living hypotheses came from: their texts as a tree of back pointers.

    Attributes:
        token_ids: [steps, batch, beam] int32, the token that each step put into each slot.
        parents: [steps, batch, beam] int32, the slot, one step earlier, that it was added to.
    """

    token_ids: tf.Tensor
    parents: tf.Tensor


class Tracked(NamedTuple):
    """What a search keeps of open sentences beside the model's cache; each is empty, or one tensor, if options ask.

    Attributes:
        texts: int32 [open, beam, length], the living hypotheses' tokens behind the start symbol.
        prefixes: int32 [open, prefix_len]; see `Goal`.
        constraints: int32 [open, phrases, phrase_len].
        excluded: int32 [open, phrases, phrase_len].
    """

    texts: tuple[tf.Tensor, ...] = ()
    prefixes: tuple[tf.Tensor, ...] = ()
    constraints: tuple[tf.Tensor, ...] = ()
    excluded: tuple[tf.Tensor, ...] = ()


class SearchState(NamedTuple):
    """All that one step hands to the next.

    Attributes:
        length: int32 scalar, tokens in every living hypothesis = steps made.
        done: [batch] bool, sentences whose result cannot change any more.
        living: the living hypotheses.
        finished: the finished hypotheses.
        num_finished: [batch] int32, how many have finished, those that were dropped again included.
        history: the living hypotheses' earlier tokens.
        open_sentences: [open] int32, those of the batch that the caches still hold: all that
            are not done, and perhaps some that are.
        cache: the step function's, in the order of `open_sentences` and `living`.
        tracked: what the search keeps beside it for its options, in the same order.
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


def start_state(cache: Cache, tracked: Tracked, max_lengths: tf.Tensor, beam_size: int, start_id: int) -> SearchState:
    """The state before the first step: one living hypothesis a sentence, and that one empty.

    Args:
        cache: what the step function starts from.
        tracked: what the options need.
        max_lengths: [batch] int32, most tokens an output may have.
        beam_size: slots a sentence.
        start_id: the id that stands before the first token.
    """
    shape = [tf.shape(max_lengths)[0], beam_size]
    steps = tf.maximum(tf.reduce_max(max_lengths), 0)  # an empty batch has no largest limit
    empty = tf.zeros([steps, *shape], tf.int32)
    first_alive = tf.where(tf.range(beam_size) == 0, 0.0, DEAD)  # equal hypotheses would crowd the beam
    return SearchState(
        length=tf.constant(0),
        done=max_lengths <= 0,
        living=Living(tf.fill(shape, start_id), tf.broadcast_to(first_alive, shape)),
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
    """A shape in which every number of sentences fits; that of a scalar is its own."""
    return tf.TensorShape([None, *value.shape[1:]]) if value.shape.rank else value.shape


def growing(value: tf.Tensor) -> tf.TensorShape:
    """A shape in which every number of sentences fits and axes of length 0 grow."""
    return tf.TensorShape([size or None for size in any_rows(value)])


def cache_shapes(cache: Cache) -> Cache:
    """Shapes for `tf.while_loop` of a step function's cache."""
    shapes = tf.nest.map_structure(any_rows, cache)
    grow = {name: tf.nest.map_structure(growing, getattr(cache, name)) for name in ("per_hypothesis", "per_sentence")}
    return shapes._replace(**grow)


def state_shapes(state: SearchState) -> SearchState:
    """Shapes for `tf.while_loop`."""
    beam_size = state.living.log_probs.shape[1]
    slots = tf.TensorShape([None, beam_size])
    steps = tf.TensorShape([None, None, beam_size])

    return SearchState(
        length=state.length.shape,
        done=tf.TensorShape([None]),
        living=Living(slots, slots),
        finished=Finished(slots, slots, slots, slots),
        num_finished=tf.TensorShape([None]),
        history=History(steps, steps),
        open_sentences=tf.TensorShape([None]),
        cache=cache_shapes(state.cache),
        tracked=tf.nest.map_structure(growing, state.tracked),
        coverage_scores=tf.nest.map_structure(any_rows, state.coverage_scores),
    )


def gather_slots(values: Any, slots: tf.Tensor) -> Any:
    """Picks slots of each sentence.

    Args:
        values: a nest of tensors [batch, slots].
        slots: [batch, picked] int32.

    Returns:
        The nest with tensors [batch, picked].
    """
    return tf.nest.map_structure(lambda value: tf.gather(value, slots, batch_dims=1), values)


def spread(values: tf.Tensor, sentences: tf.Tensor, like: tf.Tensor, default: float | int) -> tf.Tensor:
    """Rows of some sentences as rows of the whole batch.

    Args:
        values: [open, width].
        sentences: [open] int32, which sentences these are.
        like: a tensor [batch, ...].
        default: what the rows of all other sentences are filled with.

    Returns:
        [batch, width].
    """
    empty = tf.fill([tf.shape(like)[0], values.shape[1]], tf.constant(default, values.dtype))
    return tf.tensor_scatter_nd_update(empty, sentences[:, tf.newaxis], values)


def move_caches(state: SearchState, parents: tf.Tensor) -> SearchState:
    """Lets what follows a hypothesis follow it, and leaves out sentences that are done.

    Args:
        state: after a step, but for its caches.
        parents: [batch, beam] int32, the slot that each living hypothesis comes from.
    """
    if parents.shape[1] > 1:
        open_parents = tf.gather(parents, state.open_sentences)  # --> [open, beam]
        following = (state.cache.per_hypothesis, state.cache.coverage, state.tracked.texts)
        per_hypothesis, coverage, texts = gather_slots(following, open_parents)
        state = state._replace(
            cache=state.cache._replace(per_hypothesis=per_hypothesis, coverage=coverage),
            tracked=state.tracked._replace(texts=texts),
        )
    return leave_out_done(state)


def leave_out_done(state: SearchState) -> SearchState:
    """Leaves sentences that are done out of the caches, when it is time for that."""
    is_open = ~tf.gather(state.done, state.open_sentences)
    num_open = tf.size(is_open)
    shrink = is_time_to_leave(num_open - tf.reduce_sum(tf.cast(is_open, tf.int32)), num_open)
    kept = (state.open_sentences, state.cache._replace(position=()), state.tracked)
    flat = tf.nest.flatten(kept)

    def leave_out() -> list[tf.Tensor]:
        places = tf.where(is_open)[:, 0]  # --> [open]
        return [tf.gather(value, places) for value in flat]

    flat = tf.cond(shrink, leave_out, lambda: flat)
    sentences, cache, tracked = tf.nest.pack_sequence_as(kept, flat)
    cache = cache._replace(position=state.cache.position)
    return state._replace(open_sentences=sentences, cache=cache, tracked=tracked)


def remember(history: History, step: tf.Tensor, token_ids: tf.Tensor, parents: tf.Tensor) -> History:
    """Writes one step, [batch, beam] each, into the history."""
    place = tf.reshape(step, [1, 1])
    return History(
        tf.tensor_scatter_nd_update(history.token_ids, place, token_ids[tf.newaxis]),
        tf.tensor_scatter_nd_update(history.parents, place, parents[tf.newaxis]),
    )


def trace_back(history: History, slots: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Reads texts out of the history, from their last token to their first.

    Args:
        history: of a search, cut to the steps that were made.
        slots: [batch, beam] int32, the slot of each text after its last step.
        lengths: [batch, beam] int32, its tokens; the result is 0 beyond them.

    Returns:
        [batch, beam, steps] int32.
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
    """Token ids, int32 [steps, batch, beam], as [batch, beam, steps].

    `tf.transpose` would do, but TensorFlow looks for a oneDNN kernel of int32 for it and reports on standard error,
    in the midst of a program's output, that there is none.
    """
    steps, batch, beam = tf.unstack(tf.shape(token_ids))
    hypotheses = tf.reshape(tf.range(batch * beam), [batch, beam, 1])
    found = tf.gather(tf.reshape(token_ids, [-1]), hypotheses + tf.range(steps) * (batch * beam))
    return tf.ensure_shape(found, [token_ids.shape[axis] for axis in (1, 2, 0)])
