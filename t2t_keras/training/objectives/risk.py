"""Expected cost of what the model itself would say, mixed with the likelihood of the references."""

import tensorflow as tf

from t2t_keras.search.random_numbers import sentence_keys
from t2t_keras.symbols import PAD_ID
from t2t_keras.tensor import Tensor
from t2t_keras.training.objectives.gleu import sentence_gleu
from t2t_keras.training.objectives.objective import Rows
from t2t_keras.training.objectives.weighted_model import Pairs, WeightedModel


class Risk:
    """likelihood_weight * (cross-entropy + auxiliary loss) + sum over sentences of E[1 - GLEU]; see `Objective`.

    The expectation is over outputs that the model draws without dropout, and that are cut at `longest` tokens. Its
    gradient is estimated by some candidates of each sentence, the reward of each less the mean of the others':
    -(r_k - mean of r_j, j != k) / samples * grad log p(y_k), summed over k. That is unbiased. Candidates, at least 2,
    are a function of the seed, the step and the source alone. A `likelihood_weight` of 0 leaves the references out.

    Reference: Wu et al. 2016, "Google's Neural Machine Translation System", section 5.
    """

    measures: tuple[str, ...] = ("sampled_gleu",)

    def __init__(self, likelihood_weight: float, num_samples: int, label_smoothing: float, seed: int) -> None:
        self._likelihood_weight, self._num_samples = likelihood_weight, num_samples
        self._label_smoothing, self._seed = label_smoothing, seed

    def __call__(self, model: WeightedModel, matrices: list[Tensor], rows: Rows) -> tuple[Tensor, list[Tensor]]:
        return self.of_candidates(model, matrices, rows, self.candidates(model, matrices, rows))

    def candidates(self, model: WeightedModel, matrices: list[Tensor], rows: Rows) -> Tensor:
        """Draws candidates: int32 [samples, rows, length]; length is `longest` of the padded targets."""
        source, target = rows.pairs
        tokens = tf.math.count_nonzero(target, axis=1, dtype=tf.int32)  # --> [rows]
        limits = tf.where(tokens > 0, longest(tokens), 0)
        seeds = tf.fill(tf.shape(tokens), tf.constant(self._seed, tf.int64) * 2**32 + rows.step)
        drawn = model.samples(matrices, source, sentence_keys(seeds, source), limits, self._num_samples)
        # Of a length that depends on the batch alone, so that the largest batch takes the most memory.
        missing = longest(tf.shape(target)[1]) - tf.shape(drawn)[2]
        return tf.pad(drawn, [[0, 0], [0, 0], [0, missing]], constant_values=PAD_ID)

    def of_candidates(
        self, model: WeightedModel, matrices: list[Tensor], rows: Rows, candidates: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """The sums and the gradients of a call with given candidates, int32 [samples, rows, length]."""
        source, target = rows.pairs
        rewards = tf.map_fn(
            lambda texts: sentence_gleu(texts, target),
            candidates,
            parallel_iterations=1,
            fn_output_signature=tf.float32,
        )  # --> [samples, rows]
        mean = tf.reduce_mean(rewards, axis=0)  # --> [rows]
        # (r - mean of the others) / samples
        advantages = (rewards - mean) / (self._num_samples - 1)
        likelihood, gradients = self._likelihood(model, matrices, rows)

        def add(index: Tensor, gradients: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
            pairs = Pairs(source, candidates[index])
            _, of_pairs = model.policy(matrices, pairs, rows.scale * advantages[index])
            return index + 1, [before + more for before, more in zip(gradients, of_pairs, strict=True)]

        # One candidate of each sentence after the other, which takes no more memory than the references do.
        start = (tf.constant(0), gradients)
        _, gradients = tf.while_loop(lambda index, _: index < self._num_samples, add, start, parallel_iterations=1)
        tokens = tf.math.count_nonzero(target, axis=1, dtype=tf.float32)  # --> [rows]
        cost = tf.reduce_sum(tf.where(tokens > 0, 1.0 - mean, 0.0))
        return tf.stack([likelihood + cost, tf.reduce_sum(tokens * mean)]) * rows.scale, gradients

    def _likelihood(
        self, model: WeightedModel, matrices: list[Tensor], rows: Rows
    ) -> tuple[Tensor | float, list[Tensor]]:
        """The weighted sum of the losses of the references, and its scaled gradients."""
        if not self._likelihood_weight:
            return 0.0, [tf.zeros_like(matrix) for matrix in matrices]
        scale = self._likelihood_weight * rows.scale
        loss, gradients = model.likelihood(matrices, rows.pairs, scale, self._label_smoothing, rows.seed)
        return self._likelihood_weight * loss, gradients


def longest(tokens: Tensor) -> Tensor:
    """The most tokens of a candidate, end symbol included, for a reference of so many: a quarter and 5 more."""
    return tokens + tokens // 4 + 5
