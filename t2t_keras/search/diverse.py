"""Diverse beam search: groups of hypotheses that avoid each other's tokens (Vijayakumar et al. 2018).

The beam is split into groups of equal size. Each group is a separate beam search that finishes hypotheses and stops
separately. In the search state, a group takes the place of a sentence: [batch * groups, beam / groups]. The step
function and its caches have all groups of a sentence side by side: [batch, beam].
"""

import tensorflow as tf

from t2t_keras.search.candidates import Candidates, biased_candidates, first_continuing
from t2t_keras.search.state import DEAD, Finished
from t2t_keras.symbols import EOS_ID


def diverse_candidates(
    log_probs: tf.Tensor,
    active_log_probs: tf.Tensor,
    bias: tf.Tensor,
    group_done: tf.Tensor,
    strength: float,
) -> Candidates:
    """Chooses the candidates of all groups, one group after the other: [open * groups, candidates].

    A group ranks tokens by log-probability - strength * n, where n is the number of active hypotheses of earlier groups
    that took the same token at this step. Groups that are done do not count.

    Args:
        log_probs: float32 [open, beam, vocab], of each next token.
        active_log_probs: float32 [open, beam], total log-probabilities of the active hypotheses.
        bias: float32 [open, beam, vocab], or broadcastable to it; affects only the choice.
        group_done: bool [open, groups].
        strength: penalty for each earlier hypothesis with the same token.
    """
    num_groups, vocab = group_done.shape[1], log_probs.shape[-1]
    bias = tf.broadcast_to(bias, tf.shape(log_probs))
    token_counts = tf.zeros([tf.shape(log_probs)[0], 1, vocab])
    groups = []
    parts = (tf.split(values, num_groups, axis=1) for values in (log_probs, active_log_probs, bias))
    for group, (group_log_probs, totals, group_bias) in enumerate(zip(*parts, strict=True)):
        candidates = biased_candidates(group_log_probs, totals, group_bias - strength * token_counts)
        groups.append(candidates)
        active = first_continuing(candidates, candidates.token_ids == EOS_ID)
        is_counted = (active.log_probs > DEAD) & ~group_done[:, group : group + 1]  # --> [open, beam / groups]
        tokens = tf.one_hot(tf.where(is_counted, active.token_ids, -1), vocab)  # an id of -1 gives a row of zeros
        token_counts += tf.reduce_sum(tokens, axis=1, keepdims=True)
    arrays = (tf.stack(values, axis=1) for values in zip(*groups, strict=True))  # --> [open, groups, candidates]
    return Candidates(*(tf.reshape(values, [-1, values.shape[2]]) for values in arrays))


def merge_groups(values: tf.Tensor, num_groups: int) -> tf.Tensor:
    """Concatenates the slots of each sentence's groups: [batch * groups, slots] --> [batch, groups * slots]."""
    if num_groups == 1:
        return values
    return tf.reshape(values, [-1, num_groups * values.shape[1]])


def split_groups(values: tf.Tensor, num_groups: int) -> tf.Tensor:
    """Splits the slots of each sentence into groups; the inverse of `merge_groups`."""
    if num_groups == 1:
        return values
    return tf.reshape(values, [-1, values.shape[1] // num_groups])


def sentence_slots(slots: tf.Tensor, num_groups: int) -> tf.Tensor:
    """Converts slots within groups, [batch * groups, slots], to slots within sentences, [batch, groups * slots]."""
    if num_groups == 1:
        return slots
    group_size = slots.shape[1]
    first_slots = tf.repeat(tf.range(num_groups) * group_size, group_size)
    return merge_groups(slots, num_groups) + first_slots


def any_finished(finished: Finished, num_groups: int) -> tf.Tensor:
    """Whether any group of the sentence has a finished hypothesis, bool [batch * groups, 1]."""
    has_ended = finished.scores[:, :1] > DEAD
    if num_groups == 1:
        return has_ended
    any_ended = tf.reduce_any(tf.reshape(has_ended, [-1, num_groups]), axis=1, keepdims=True)  # --> [batch, 1]
    return tf.repeat(any_ended, num_groups, axis=0)
