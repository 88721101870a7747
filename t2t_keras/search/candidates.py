"""The candidates of a step: the continuations of active hypotheses that it considers, and those that stay active."""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras.search import state as search_state
from t2t_keras.search.state import DEAD
from t2t_keras.search.top_k import top_k
from t2t_keras.symbols import EOS_ID, PAD_ID

# One thread computes this many exponentials in less time than it takes to wake a second thread.
_FEW_LOGITS = 2**15


class Candidates(NamedTuple):
    """Continuations of a sentence's active hypotheses, in order of preference.

    Attributes:
        log_probs: float32 [batch, candidates], total log-probability; DEAD in an empty slot.
        token_ids: int32 [batch, candidates], the token that is appended.
        parents: int32 [batch, candidates], slot of the hypothesis that is continued.
    """

    log_probs: tf.Tensor
    token_ids: tf.Tensor
    parents: tf.Tensor


def number_of_candidates(beam: int) -> int:
    """Returns the number of candidates of a step.

    It is 2 * beam: at most one continuation of each hypothesis ends, which leaves at least beam that stay active. With
    a beam of one it is 1, which is greedy search.
    """
    return 2 * beam if beam > 1 else 1


def best_candidates(logits: tf.Tensor, active_log_probs: tf.Tensor, may_end: tf.Tensor) -> Candidates:
    """Returns the most probable continuations if only their length is restricted.

    Only the best entries of each row are considered: as many as there are candidates, and two more because padding and
    the end symbol may be among them.

    Args:
        logits: float32 [open * beam, vocab].
        active_log_probs: float32 [open, beam], total log-probabilities of the active hypotheses.
        may_end: bool [open], whether the end symbol is allowed.

    Returns:
        The candidates, [open, candidates].
    """
    beam, vocab = active_log_probs.shape[1], logits.shape[-1]
    num_candidates = number_of_candidates(beam)
    per_row = min(num_candidates + 2, vocab)
    best_logits, token_ids = top_k(logits, per_row)  # --> [N, per_row]
    # log(softmax(x)) = x - max(x) + log(max(softmax(x)))
    log_probs = best_logits + (
        log_largest_probability(logits, best_logits[:, :1], token_ids[:, :1]) - best_logits[:, :1]
    )
    log_probs, token_ids = (tf.reshape(values, [-1, beam, per_row]) for values in (log_probs, token_ids))
    is_barred = (token_ids == PAD_ID) | (~may_end[:, tf.newaxis, tf.newaxis] & (token_ids == EOS_ID))
    log_probs = tf.where(is_barred, DEAD, log_probs + active_log_probs[:, :, tf.newaxis])
    best, places = tf.math.top_k(tf.reshape(log_probs, [-1, beam * per_row]), num_candidates)  # --> [open, candidates]
    token_ids = search_state.gather_slots(tf.reshape(token_ids, [-1, beam * per_row]), places)
    return Candidates(best, token_ids, places // per_row)


def log_largest_probability(logits: tf.Tensor, largest: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Returns the logarithm of the largest probability of each row, float32 [rows, 1].

    The largest probability is 1 / sum(exp(logits - largest)). oneDNN's softmax is faster for many rows, but it wakes
    all threads, which takes longer than computing a few rows.

    Args:
        logits: float32 [rows, vocab].
        largest: float32 [rows, 1], the largest logit of each row.
        places: int32 [rows, 1], its index.
    """

    def from_exponentials() -> tf.Tensor:
        return -tf.math.log(tf.reduce_sum(tf.exp(logits - largest), axis=1, keepdims=True))

    def from_softmax() -> tf.Tensor:
        return tf.math.log(tf.gather(tf.nn.softmax(logits), places, batch_dims=1))

    return tf.cond(tf.size(logits) <= _FEW_LOGITS, from_exponentials, from_softmax)


def biased_candidates(log_probs: tf.Tensor, active_log_probs: tf.Tensor, bias: tf.Tensor) -> Candidates:
    """Returns the continuations with the best sum of log-probability and bias, [open, candidates].

    Log-probabilities and bias are float32 [open, beam, vocab], and the bias may be broadcast. It affects only the
    choice, not the resulting log-probabilities.
    """
    beam, vocab = active_log_probs.shape[1], log_probs.shape[-1]
    num_candidates = number_of_candidates(beam)
    per_row = min(num_candidates, vocab)
    ranks, token_ids = top_k(tf.reshape(log_probs + bias, [-1, vocab]), per_row)  # --> [N, per_row]
    chosen_log_probs = tf.gather(tf.reshape(log_probs, [-1, vocab]), token_ids, batch_dims=1)
    totals = tf.reshape(active_log_probs, [-1, 1])
    rows = (ranks + totals, tf.where(ranks > DEAD, chosen_log_probs + totals, DEAD), token_ids)
    ranks, chosen_log_probs, token_ids = (tf.reshape(row, [-1, beam * per_row]) for row in rows)
    _, places = tf.math.top_k(ranks, num_candidates)  # --> [open, candidates]
    chosen_log_probs, token_ids = search_state.gather_slots((chosen_log_probs, token_ids), places)
    return Candidates(chosen_log_probs, token_ids, places // per_row)


def first_continuing(candidates: Candidates, ends: tf.Tensor) -> Candidates:
    """Returns the first candidates that do not end, in order: half of the candidates, but at least one.

    `ends` is bool [open, candidates]. Slots that remain are DEAD.
    """
    count = candidates.log_probs.shape[1]
    keys = tf.where(ends, -count, -tf.range(count))
    _, places = tf.math.top_k(keys, max(1, count // 2))
    candidates = candidates._replace(log_probs=tf.where(ends, DEAD, candidates.log_probs))
    return Candidates(*search_state.gather_slots(tuple(candidates), places))
