"""The label-smoothed loss as a sum and a token count."""

from typing import Any

import keras
from keras import ops

from t2t_keras.tensor import Tensor


def token_losses(targets: Tensor, logits: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Cross-entropy of int `targets` [...] against (1 - epsilon) one-hot + epsilon uniform (section 5.4), float32
    [...].

    The uniform part covers the whole vocabulary (Szegedy et al., 2016). T2T gives the target exactly 1 - epsilon and
    the rest epsilon / (vocab - 1): the same distribution at epsilon' = epsilon * vocab / (vocab - 1). `logits` are
    float [..., vocab]; `label_smoothing` is epsilon, in [0, 1).
    """
    logits = ops.cast(logits, "float32")
    log_normaliser = ops.logsumexp(logits, axis=-1)  # --> [...]
    target_logits = ops.squeeze(ops.take_along_axis(logits, targets[..., None], axis=-1), -1)  # --> [...]
    mean_logits = ops.mean(logits, axis=-1)  # --> [...]
    return log_normaliser - (1.0 - label_smoothing) * target_logits - label_smoothing * mean_logits


def loss_sum_and_count(targets: Tensor, logits: Tensor, label_smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Sum of the token losses and number of tokens, float32 scalars, to be divided once, over all replicas. Targets are
    int [batch, target_len], where id 0 is padding and does not count; logits are float [batch, target_len, vocab].
    """
    real = ops.cast(ops.not_equal(targets, 0), "float32")
    return ops.sum(token_losses(targets, logits, label_smoothing) * real), ops.sum(real)


@keras.saving.register_keras_serializable(package="t2t_keras")
class SmoothedCrossEntropy(keras.losses.Loss):
    """The loss for Keras's `fit`: a mean over the batch's tokens without padding, float32 scalar.

    Weights of samples, float [batch] or [batch, target_len], multiply the token losses; they do not change what the sum
    is divided by, as in Keras's own losses, unless the reduction is "mean_with_sample_weight".

    Args:
        label_smoothing: epsilon, in [0, 1).

    Call arguments:
        y_true: int [batch, target_len]; id 0 is padding.
        y_pred: logits, float [batch, target_len, vocab].

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
            sample_weight = ops.expand_dims(sample_weight, -1)  # of all tokens of a sentence
        if self.reduction == "mean_with_sample_weight":  # Keras divides by the sum of the weights
            real = ops.cast(ops.not_equal(y_true, 0), "float32")
            sample_weight = real if sample_weight is None else ops.cast(sample_weight, "float32") * real
        if getattr(y_pred, "_keras_mask", None) is not None:
            # Without the mask, by which Keras would divide once more.
            y_pred = ops.reshape(y_pred, ops.shape(y_pred))
        return super().__call__(y_true, y_pred, sample_weight)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        targets = ops.cast(y_true, "int32")
        real = ops.cast(ops.not_equal(targets, 0), "float32")
        # Keras takes the mean over all positions: times this, it is one over the tokens.
        share = ops.mean(real) if self.reduction in ("sum_over_batch_size", "mean") else 1.0
        return token_losses(targets, y_pred, self.label_smoothing) * real / ops.where(share > 0, share, 1.0)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "label_smoothing": self.label_smoothing}
