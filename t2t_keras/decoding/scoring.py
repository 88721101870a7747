"""How hypotheses of different lengths are compared, and the bound that ends a search."""

import tensorflow as tf


def length_penalty(lengths: tf.Tensor, alpha: float) -> tf.Tensor:
    """lp(length) = ((5 + length) / 6) ** alpha, what a log-probability is divided by.

    Args:
        lengths: integers of any shape: tokens of a hypothesis, the end symbol counted.
        alpha: strength; 0 compares plain log-probabilities (lp = 1 everywhere).

    Returns:
        float32, the shape of `lengths`; never falls as the length grows.

    Raises:
        ValueError: alpha is negative: the bound below would not hold.

    Reference:
        Wu et al. 2016, "Google's Neural Machine Translation System", equation 14.
    """
    if alpha < 0:
        raise ValueError(f"alpha must not be negative, got {alpha}")
    return tf.pow((5.0 + tf.cast(lengths, tf.float32)) / 6.0, alpha)


def normalised_score(log_probs: tf.Tensor, lengths: tf.Tensor, alpha: float) -> tf.Tensor:
    """The score that hypotheses are ranked by: log-probability over length penalty.

    Args:
        log_probs: float32, total log-probability of each hypothesis.
        lengths: integers that broadcast against `log_probs`, the end symbol counted.
        alpha: strength of the length penalty.

    Returns:
        float32, the broadcast shape.
    """
    return log_probs / length_penalty(lengths, alpha)


def best_attainable_score(log_probs: tf.Tensor, max_lengths: tf.Tensor, alpha: float) -> tf.Tensor:
    """The score that a living hypothesis cannot exceed, whatever follows.

    A log-probability is never positive and only falls as tokens are added,
    while the penalty that it is divided by only grows, up to that of the
    longest output which the sentence may have. So today's log-probability
    over that largest penalty bounds every continuation.

    Args:
        log_probs: float32, total log-probability so far, <= 0.
        max_lengths: integers that broadcast against `log_probs`: the sentences' own limits.
        alpha: strength of the length penalty, >= 0.

    Returns:
        float32, the broadcast shape.
    """
    return normalised_score(log_probs, max_lengths, alpha)
