"""Scores that make hypotheses of different lengths comparable, and the rule for removing sentences that are done."""

from typing import Any

import tensorflow as tf

# Lower bound on the coverage, so that a source token without attention does not give -inf.
_MIN_COVERAGE = 1e-6


def length_penalty(lengths: tf.Tensor, alpha: float, normalization: str = "gnmt") -> tf.Tensor:
    """Returns the divisor of log-probabilities, by default lp(length) = ((5 + length) / 6) ** alpha.

    It never decreases as the length grows.

    Args:
        lengths: integers of any shape, number of tokens of a hypothesis, end symbol included.
        alpha: exponent of "gnmt", at least 0; 0 compares plain log-probabilities.
        normalization: "gnmt" for the formula above, "average" for the length itself, or "none" for 1.

    Returns:
        float32 of the shape of `lengths`.

    Reference: Wu et al. 2016, "Google's Neural Machine Translation System", equation 14.
    """
    lengths = tf.cast(lengths, tf.float32)
    if normalization == "none":
        return tf.ones_like(lengths)
    if normalization == "average":
        return tf.maximum(lengths, 1.0)  # a skipped sentence has an empty output with score 0
    return tf.pow((5.0 + lengths) / 6.0, alpha)


def normalised_score(log_probs: tf.Tensor, lengths: tf.Tensor, alpha: float, normalization: str = "gnmt") -> tf.Tensor:
    """Returns the scores of hypotheses, log-probability over length penalty: float32 of the broadcast shape.

    With the longest allowed length, this is an upper bound on the final score of an active hypothesis, because
    log-probabilities are never positive and only fall as tokens are added, and the length penalty never decreases. The
    bound also holds with coverage scores, which are never positive.
    """
    return log_probs / length_penalty(lengths, alpha, normalization)


def coverage_score(coverage: tf.Tensor, beta: float) -> tf.Tensor:
    """Returns beta * sum_i log(min(sum_j p_ij, 1)), a penalty for source tokens that received little attention.

    Args:
        coverage: float [..., source_len], sum_j p_ij: attention to each source token, summed over the output tokens; at
            least 1 for padding.
        beta: weight of the penalty.

    Returns:
        float32 [...], to be added to scores; never positive and always finite.

    Reference: Wu et al. 2016, equation 14.
    """
    coverage = tf.clip_by_value(tf.cast(coverage, tf.float32), _MIN_COVERAGE, 1.0)
    return beta * tf.reduce_sum(tf.math.log(coverage), axis=-1)


def should_remove_done(num_done: Any, num_open: Any) -> Any:
    """Whether enough sentences are done (a quarter of the open ones) to be worth the copy that removes them."""
    return 4 * num_done >= num_open
