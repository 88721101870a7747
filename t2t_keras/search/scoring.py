"""How hypotheses of different lengths are compared, and the bound that ends a search."""

import tensorflow as tf

# The least attention that counts, so that a source token without any gives no infinity.
_LEAST_COVERAGE = 1e-6


def length_penalty(lengths: tf.Tensor, alpha: float, normalization: str = "gnmt") -> tf.Tensor:
    """What a log-probability is divided by; by default lp(length) = ((5 + length) / 6) ** alpha.

    Args:
        lengths: integers of any shape: tokens of a hypothesis, the end symbol counted.
        alpha: strength of "gnmt", not negative; 0 compares plain log-probabilities (lp = 1 everywhere).
        normalization: "gnmt" as above; "average": the length itself; "none": 1.

    Returns:
        float32, the shape of `lengths`; never falls as the length grows.

    Reference:
        Wu et al. 2016, "Google's Neural Machine Translation System", equation 14.
    """
    lengths = tf.cast(lengths, tf.float32)
    if normalization == "none":
        return tf.ones_like(lengths)
    if normalization == "average":
        return tf.maximum(lengths, 1.0)  # an empty output, of a sentence that is left out, has score 0
    return tf.pow((5.0 + lengths) / 6.0, alpha)


def normalised_score(log_probs: tf.Tensor, lengths: tf.Tensor, alpha: float, normalization: str = "gnmt") -> tf.Tensor:
    """The score that hypotheses are ranked by: log-probability over length penalty.

    Args:
        log_probs: float32, total log-probability of each hypothesis.
        lengths: integers that broadcast against `log_probs`, the end symbol counted.
        alpha: strength of the length penalty.
        normalization: which penalty; see `length_penalty`.

    Returns:
        float32, the broadcast shape.
    """
    return log_probs / length_penalty(lengths, alpha, normalization)


def best_attainable_score(
    log_probs: tf.Tensor, max_lengths: tf.Tensor, alpha: float, normalization: str = "gnmt"
) -> tf.Tensor:
    """The score that a living hypothesis cannot exceed, whatever follows.

    A log-probability is never positive and only falls as tokens are added,
    while the penalty that it is divided by only grows, up to that of the
    longest output which the sentence may have. So today's log-probability
    over that largest penalty bounds every continuation. A coverage penalty is
    never positive either, so that the bound holds with it too.

    Args:
        log_probs: float32, total log-probability so far, <= 0.
        max_lengths: integers that broadcast against `log_probs`: the sentences' own limits.
        alpha: strength of the length penalty, >= 0.
        normalization: which penalty; see `length_penalty`.

    Returns:
        float32, the broadcast shape.
    """
    return normalised_score(log_probs, max_lengths, alpha, normalization)


def coverage_score(coverage: tf.Tensor, beta: float) -> tf.Tensor:
    """beta * sum_i log(min(sum_j p_ij, 1)): what is added to a score for attention that source tokens missed.

    Args:
        coverage: float [..., source_len], sum_j p_ij: the attention that each source token got
            from all output tokens together; 1 or more where there is padding.
        beta: strength, >= 0.

    Returns:
        float32 [...], never positive and always finite.

    Reference:
        Wu et al. 2016, equation 14.
    """
    coverage = tf.clip_by_value(tf.cast(coverage, tf.float32), _LEAST_COVERAGE, 1.0)
    return beta * tf.reduce_sum(tf.math.log(coverage), axis=-1)
