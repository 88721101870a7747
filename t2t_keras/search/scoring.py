"""Scores that compare hypotheses of different lengths, and when sentences that are done leave a search."""

from typing import Any

import tensorflow as tf

# Lower bound of the coverage, so that a source token without attention does not give -inf.
_LEAST_COVERAGE = 1e-6


def length_penalty(lengths: tf.Tensor, alpha: float, normalization: str = "gnmt") -> tf.Tensor:
    """The divisor of log-probabilities, by default lp(length) = ((5 + length) / 6) ** alpha. It never falls.

    Args:
        lengths: integers of any shape: tokens of a hypothesis, end symbol included.
        alpha: strength of "gnmt", not negative; 0 compares plain log-probabilities.
        normalization: "gnmt", the formula above; "average", the length itself; "none", 1.

    Returns:
        float32, the shape of `lengths`.

    Reference: Wu et al. 2016, "Google's Neural Machine Translation System", equation 14.
    """
    lengths = tf.cast(lengths, tf.float32)
    if normalization == "none":
        return tf.ones_like(lengths)
    if normalization == "average":
        return tf.maximum(lengths, 1.0)  # a skipped sentence has an empty output with score 0
    return tf.pow((5.0 + lengths) / 6.0, alpha)


def normalised_score(log_probs: tf.Tensor, lengths: tf.Tensor, alpha: float, normalization: str = "gnmt") -> tf.Tensor:
    """The score of a hypothesis: its log-probability over its length penalty, float32 of the broadcast shape.

    With the longest length that is allowed, a living hypothesis cannot exceed it: log-probabilities are never positive
    and only fall as tokens are added, and the penalty only grows. Nor can it with a coverage penalty, which is never
    positive.
    """
    return log_probs / length_penalty(lengths, alpha, normalization)


def coverage_score(coverage: tf.Tensor, beta: float) -> tf.Tensor:
    """beta * sum_i log(min(sum_j p_ij, 1)): the penalty for source tokens that got little attention, added to a score.

    Takes coverage, float [..., source_len]: sum_j p_ij, each source token's attention from all output tokens, 1 or more
    for padding. Returns float32 [...], never positive and always finite.

    Reference: Wu et al. 2016, equation 14.
    """
    coverage = tf.clip_by_value(tf.cast(coverage, tf.float32), _LEAST_COVERAGE, 1.0)
    return beta * tf.reduce_sum(tf.math.log(coverage), axis=-1)


def is_time_to_leave(num_done: Any, num_open: Any) -> Any:
    """Whether at least a quarter of the open sentences is done: leaving copies the whole state, so it must pay off."""
    return 4 * num_done >= num_open
