"""The metrics of one line of the training log."""

from t2t_keras.training.step import StepMetrics


class Interval:
    """Metrics summed since the last log line; saved in checkpoints, so that no line covers fewer steps."""

    def __init__(self, loss_sum: float = 0.0, tokens: float = 0.0, seconds: float = 0.0) -> None:
        self.loss_sum, self.tokens, self.seconds = loss_sum, tokens, seconds
        self.learning_rate = self.gradient_norm = 0.0

    def add(self, metrics: StepMetrics, seconds: float) -> None:
        """Adds the steps of one call, which took `seconds`."""
        # One by one, because the sums must not depend on how many steps a call had.
        for loss, tokens in zip(metrics.loss.tolist(), metrics.tokens.tolist(), strict=True):
            self.loss_sum += loss * tokens
            self.tokens += tokens
        self.seconds += seconds  # of training alone, without validations
        self.learning_rate = float(metrics.learning_rate[-1])
        self.gradient_norm = float(metrics.gradient_norm[-1])

    def sums(self) -> list[float]:
        """The constructor's arguments, for a checkpoint."""
        return [self.loss_sum, self.tokens, self.seconds]

    def summary(self) -> dict[str, float]:
        """The numbers of a log line."""
        return {
            "loss": self.loss_sum / self.tokens,
            "tokens": int(self.tokens),
            "learning_rate": self.learning_rate,
            "gradient_norm": self.gradient_norm,
            "seconds": self.seconds,
        }
