"""Label-smoothed cross-entropy, as a sum with a token count and as a Keras loss."""

from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_keras.tensor import Tensor
from t2t_keras.values import Rate, check_arguments


def token_losses(targets: Tensor, logits: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Cross-entropy of each token with label smoothing (section 5.4).

    The smoothed target distribution is (1 - epsilon) * one-hot + epsilon * uniform, where the uniform part covers the
    whole vocabulary (Szegedy et al., 2016). T2T gives the target exactly 1 - epsilon and every other entry
    epsilon / (vocab - 1), which is the same distribution with epsilon' = epsilon * vocab / (vocab - 1).

    Args:
        targets: token ids, int [...].
        logits: float [..., vocab].
        label_smoothing: epsilon, in [0, 1).

    Returns:
        float32 [...].
    """
    logits = ops.cast(logits, "float32")
    log_normaliser = ops.logsumexp(logits, axis=-1)  # --> [...]
    target_logits = ops.squeeze(ops.take_along_axis(logits, targets[..., None], axis=-1), -1)  # --> [...]
    mean_logits = ops.mean(logits, axis=-1)  # --> [...]
    return log_normaliser - (1.0 - label_smoothing) * target_logits - label_smoothing * mean_logits


class PairTerms(NamedTuple):
    """The weights of the terms in the loss of two predictions p1 and p2 of the same token.

    Attributes:
        w_ce1: weight of the cross-entropy of p1.
        w_ce2: weight of the cross-entropy of p2.
        w_kl12: weight of KL(p1 || p2), above 0.
        w_kl21: weight of KL(p2 || p1).
    """

    w_ce1: float
    w_ce2: float
    w_kl12: float
    w_kl21: float

    @classmethod
    def simcut(cls, alpha: float) -> "PairTerms":
        """SimCut: p2 is computed with token cutoff. Gradients flow through both predictions.

        Reference: Gao et al., "Bi-SimCut: A Simple Strategy for Boosting Neural Machine Translation", 2022.
        """
        return cls(1.0, 0.0, alpha, 0.0)

    @classmethod
    def rdrop(cls, alpha: float) -> "PairTerms":
        """R-Drop: p1 and p2 are computed with different dropout. All weights are half of the published ones.

        The loss thus has the scale of a single cross-entropy.

        Reference: Wu et al., "R-Drop: Regularized Dropout for Neural Networks", 2021.
        """
        return cls(0.5, 0.5, alpha / 4, alpha / 4)


def pair_losses(
    targets: Tensor, logits: tuple[Tensor, Tensor], terms: PairTerms, label_smoothing: float = 0.0
) -> Tensor:
    """Loss of each token from two predictions of it: cross-entropies as in `token_losses`, and divergences.

    Args:
        targets: token ids, int [...].
        logits: of the two predictions, float [..., vocab] each.
        terms: the weights of the terms.
        label_smoothing: epsilon, in [0, 1).

    Returns:
        float32 [...].
    """
    log_p1, log_p2 = (ops.log_softmax(ops.cast(each, "float32")) for each in logits)  # --> [..., vocab]
    difference = log_p1 - log_p2
    return (
        terms.w_ce1 * token_losses(targets, logits[0], label_smoothing)
        + terms.w_ce2 * token_losses(targets, logits[1], label_smoothing)
        + terms.w_kl12 * ops.sum(ops.exp(log_p1) * difference, axis=-1)
        - terms.w_kl21 * ops.sum(ops.exp(log_p2) * difference, axis=-1)
    )


def loss_sum_and_count(targets: Tensor, logits: Tensor, label_smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Sum of the token losses, and number of tokens.

    The two are kept apart so that the loss is normalised only once, over all replicas.

    Args:
        targets: token ids, int [batch, target_len]; id 0 is padding and does not count.
        logits: float [batch, target_len, vocab].
        label_smoothing: epsilon, in [0, 1).

    Returns:
        Two float32 scalars.
    """
    is_token = ops.cast(ops.not_equal(targets, 0), "float32")
    return ops.sum(token_losses(targets, logits, label_smoothing) * is_token), ops.sum(is_token)


@keras.saving.register_keras_serializable(package="t2t_keras")
class SmoothedCrossEntropy(keras.losses.Loss):
    """Label-smoothed cross-entropy for Keras's `fit`, averaged over the batch's tokens without padding.

    `sample_weight`, float [batch] or [batch, target_len], multiplies the token losses. As in Keras's own losses, it
    does not change the divisor, unless the reduction is "mean_with_sample_weight".

    Args:
        label_smoothing: epsilon, in [0, 1).

    Call arguments:
        y_true: int [batch, target_len]; id 0 is padding.
        y_pred: logits, float [batch, target_len, vocab].

    Returns:
        float32 scalar.

    Raises:
        ValueError: `label_smoothing` is outside [0, 1), or `dtype` is neither float32 nor float64.

    Example:
        >>> loss = SmoothedCrossEntropy(label_smoothing=0.1)
        >>> float(loss(np.array([[1, 0]]), np.zeros([1, 2, 4])))  # of one token: log 4
        1.3862943649291992
    """

    def __init__(self, label_smoothing: float = 0.0, name: str = "smoothed_cross_entropy", **kwargs: Any) -> None:
        check_arguments(Rate, label_smoothing=label_smoothing)
        super().__init__(name=name, **{"dtype": "float32", **kwargs})
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"`dtype` must be float32 or float64, got {self.dtype}: Keras would cast token ids to it")
        self.label_smoothing = label_smoothing

    def __call__(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        if sample_weight is not None and ops.ndim(sample_weight) == 1:
            sample_weight = ops.expand_dims(sample_weight, -1)  # one weight per sentence
        if self.reduction == "mean_with_sample_weight":
            # Keras divides by the sum of the weights, so padding must have weight 0.
            real = ops.cast(ops.not_equal(y_true, 0), "float32")
            sample_weight = real if sample_weight is None else ops.cast(sample_weight, "float32") * real
        if getattr(y_pred, "_keras_mask", None) is not None:
            # The reshaped tensor lacks the Keras mask, by which Keras would normalise a second time.
            y_pred = ops.reshape(y_pred, ops.shape(y_pred))
        return super().__call__(y_true, y_pred, sample_weight)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        targets = ops.cast(y_true, "int32")
        real = ops.cast(ops.not_equal(targets, 0), "float32")
        # Keras averages over all positions; dividing by the share of tokens makes it an average over tokens.
        share = ops.mean(real) if self.reduction in ("sum_over_batch_size", "mean") else 1.0
        return token_losses(targets, y_pred, self.label_smoothing) * real / ops.where(share > 0, share, 1.0)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "label_smoothing": self.label_smoothing}
