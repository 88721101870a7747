"""What training did since the last line of its log."""

from t2t_keras.training.step import StepMetrics


class Interval:
    """Metrics summed up since the last line of the log; goes into checkpoints, so that no line covers less.

    Args:
        loss_sum: of the target tokens.
        tokens: how many they were.
        seconds: of training.
    """

    def __init__(self, loss_sum: float = 0.0, tokens: float = 0.0, seconds: float = 0.0) -> None:
        self.loss_sum, self.tokens, self.seconds = loss_sum, tokens, seconds
        self.learning_rate = self.gradient_norm = 0.0

    def add(self, metrics: StepMetrics, seconds: float) -> None:
        """Adds the steps of one call."""
        # One after another: the sums must not depend on how many steps a call had.
        for loss, tokens in zip(metrics.loss.tolist(), metrics.tokens.tolist(), strict=True):
            self.loss_sum += loss * tokens
            self.tokens += tokens
        self.seconds += seconds  # of training alone, without validations
        self.learning_rate = float(metrics.learning_rate[-1])
        self.gradient_norm = float(metrics.gradient_norm[-1])

    def sums(self) -> list[float]:
        """The arguments that make this interval again, as far as steps to come need it."""
        return [self.loss_sum, self.tokens, self.seconds]

    def summary(self) -> dict[str, float]:
        """What a line of the log says."""
        return {
            "loss": self.loss_sum / self.tokens,
            "tokens": int(self.tokens),
            "learning_rate": self.learning_rate,
            "gradient_norm": self.gradient_norm,
            "seconds": self.seconds,
        }
