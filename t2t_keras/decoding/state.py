"""What a search carries from step to step, and the moves that beams make.

Axes: batch (sentences), beam (hypotheses a sentence), N = batch * beam rows as
the step function sees them, the beams of a sentence side by side.
"""

from typing import Any, NamedTuple

import tensorflow as tf

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


class SearchState(NamedTuple):
    """All that one step hands to the next.

    Attributes:
        length: int32 scalar, tokens in every living hypothesis = steps made.
        done: [batch] bool, sentences whose result cannot change any more.
        living: the living hypotheses.
        finished: the finished hypotheses.
        history: the living hypotheses' earlier tokens.
        position: the cache's entry of that name.
        self_attention: the cache's entry of that name, rows in the order of `living`.
    """

    length: tf.Tensor
    done: tf.Tensor
    living: Living
    finished: Finished
    history: History
    position: tf.Tensor
    self_attention: Any


def start_state(cache: dict[str, Any], max_lengths: tf.Tensor, beam_size: int, start_id: int) -> SearchState:
    """The state before the first step: one living hypothesis a sentence, and that one empty.

    Args:
        cache: what the step function starts from.
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
        history=History(empty, empty),
        position=cache["position"],
        self_attention=cache["self_attention"],
    )


def state_shapes(state: SearchState) -> SearchState:
    """Shapes for `tf.while_loop`: every number of sentences fits, other axes stay as they are."""
    beam_size = state.living.log_probs.shape[1]
    slots = tf.TensorShape([None, beam_size])
    steps = tf.TensorShape([None, None, beam_size])
    return SearchState(
        length=state.length.shape,
        done=tf.TensorShape([None]),
        living=Living(slots, slots),
        finished=Finished(slots, slots, slots, slots),
        history=History(steps, steps),
        position=state.position.shape,
        self_attention=tf.nest.map_structure(
            lambda rows: tf.TensorShape([None]) + rows.shape[1:], state.self_attention
        ),
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


def reorder_rows(rows: Any, parents: tf.Tensor) -> Any:
    """Lets whatever belongs to a hypothesis follow it into its new slot.

    Args:
        rows: a nest of tensors [N, ...].
        parents: [batch, beam] int32, the slot that each hypothesis comes from.

    Returns:
        The nest, rows reordered within their sentence.
    """
    batch, beam = tf.shape(parents)[0], parents.shape[1]
    if beam == 1:
        return rows
    flat = tf.reshape(parents + beam * tf.range(batch)[:, tf.newaxis], [-1])  # --> [N]
    return tf.nest.map_structure(lambda value: tf.gather(value, flat), rows)


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
    return tf.transpose(texts, [1, 2, 0])  # --> [batch, beam, steps]
