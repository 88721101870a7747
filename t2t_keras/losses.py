"""Label-smoothed cross-entropy, as a sum with a token count and as a Keras loss."""

from typing import Any

import keras
from keras import ops

from t2t_keras.tensor import Tensor


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
    real = ops.cast(ops.not_equal(targets, 0), "float32")
    return ops.sum(token_losses(targets, logits, label_smoothing) * real), ops.sum(real)


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
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"`label_smoothing` must be in [0, 1), got {label_smoothing}")
        super().__init__(name=name, **{"dtype": "float32", **kwargs})
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"`dtype` must be float32 or float64, got {self.dtype}: Keras would round token ids to it")
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
