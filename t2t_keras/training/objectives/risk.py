"""Minimum risk training: the expected cost of the model's outputs, mixed with the likelihood of the references."""

import tensorflow as tf

from t2t_keras.search.random_numbers import sentence_keys
from t2t_keras.symbols import PAD_ID
from t2t_keras.tensor import Tensor
from t2t_keras.training.objectives.gleu import sentence_gleu
from t2t_keras.training.objectives.objective import Rows
from t2t_keras.training.objectives.stateless_model import Pairs, StatelessModel


class Risk:
    """likelihood_weight * (cross-entropy + auxiliary loss) + sum over sentences of E[1 - GLEU]; an `Objective`.

    The expectation is over outputs that the model samples without dropout, truncated to `longest` tokens. The gradient
    is estimated from the sampled candidates of each sentence, with the mean reward of the other candidates as the
    baseline: sum over k of -(r_k - mean of r_j, j != k) / num_samples * grad log p(y_k). This estimate is unbiased.
    The candidates depend only on the weights, the seed, the step and the source.

    Args:
        likelihood_weight: factor on the loss of the references; 0 omits them.
        num_samples: candidates per sentence, at least 2.
        label_smoothing: epsilon of the loss of the references, in [0, 1).
        seed: the run's seed, from which the candidates are sampled.

    Reference: Wu et al. 2016, "Google's Neural Machine Translation System", section 5.
    """

    measures: tuple[str, ...] = ("sampled_gleu",)

    def __init__(self, likelihood_weight: float, num_samples: int, label_smoothing: float, seed: int) -> None:
        self._likelihood_weight, self._num_samples = likelihood_weight, num_samples
        self._label_smoothing, self._seed = label_smoothing, seed

    def __call__(self, model: StatelessModel, matrices: list[Tensor], rows: Rows) -> tuple[Tensor, list[Tensor]]:
        return self.of_candidates(model, matrices, rows, self.candidates(model, matrices, rows))

    def candidates(self, model: StatelessModel, matrices: list[Tensor], rows: Rows) -> Tensor:
        """Samples candidates, int32 [samples, rows, `longest`(target_len)]."""
        source, target = rows.pairs
        tokens = tf.math.count_nonzero(target, axis=1, dtype=tf.int32)  # --> [rows]
        limits = tf.where(tokens > 0, longest(tokens), 0)
        seeds = tf.fill(tf.shape(tokens), tf.constant(self._seed, tf.int64) * 2**32 + rows.step)
        samples = model.samples(matrices, source, sentence_keys(seeds, source), limits, self._num_samples)
        # Padded to a length that depends only on the batch, so that the largest batch needs the most memory.
        missing = longest(tf.shape(target)[1]) - tf.shape(samples)[2]
        return tf.pad(samples, [[0, 0], [0, 0], [0, missing]], constant_values=PAD_ID)

    def of_candidates(
        self, model: StatelessModel, matrices: list[Tensor], rows: Rows, candidates: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Like a call, with given candidates, int32 [samples, rows, length]."""
        source, target = rows.pairs
        rewards = tf.map_fn(
            lambda texts: sentence_gleu(texts, target),
            candidates,
            parallel_iterations=1,
            fn_output_signature=tf.float32,
        )  # --> [samples, rows]
        mean = tf.reduce_mean(rewards, axis=0)  # --> [rows]
        # Equals (reward - mean reward of the other candidates) / samples.
        advantages = (rewards - mean) / (self._num_samples - 1)
        likelihood, gradients = self._likelihood(model, matrices, rows)

        def add(index: Tensor, gradients: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
            pairs = Pairs(source, candidates[index])
            _, pair_gradients = model.policy(matrices, pairs, rows.scale * advantages[index])
            return index + 1, [total + part for total, part in zip(gradients, pair_gradients, strict=True)]

        # One candidate of every sentence at a time, which bounds the memory.
        start = (tf.constant(0), gradients)
        _, gradients = tf.while_loop(lambda index, _: index < self._num_samples, add, start, parallel_iterations=1)
        tokens = tf.math.count_nonzero(target, axis=1, dtype=tf.float32)  # --> [rows]
        cost = tf.reduce_sum(tf.where(tokens > 0, 1.0 - mean, 0.0))
        return tf.stack([likelihood + cost, tf.reduce_sum(tokens * mean)]) * rows.scale, gradients

    def _likelihood(
        self, model: StatelessModel, matrices: list[Tensor], rows: Rows
    ) -> tuple[Tensor | float, list[Tensor]]:
        """Returns the weighted sum of the losses of the references, and its scaled gradients."""
        if not self._likelihood_weight:
            return 0.0, [tf.zeros_like(matrix) for matrix in matrices]
        scale = self._likelihood_weight * rows.scale
        loss, gradients = model.likelihood(matrices, rows.pairs, scale, self._label_smoothing, rows.seed)
        return self._likelihood_weight * loss, gradients


def longest(tokens: Tensor) -> Tensor:
    """Returns the maximum length of a candidate: 1.25 times the reference's number of tokens, plus 5.

    Both lengths include the end symbol.
    """
    return tokens + tokens // 4 + 5
