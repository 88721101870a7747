"""The metrics of one line of the training log."""

from collections.abc import Mapping
from typing import Any

from t2t_keras.training.step import StepMetrics


class Interval:
    """Metrics summed since the last log line; saved in checkpoints, so that no line covers fewer steps."""

    def __init__(
        self,
        loss_sum: float = 0.0,
        tokens: float = 0.0,
        seconds: float = 0.0,
        measure_sums: Mapping[str, float] | None = None,
        processor_seconds: float = 0.0,
    ) -> None:
        self.loss_sum, self.tokens, self.seconds = loss_sum, tokens, seconds
        self.measure_sums = dict(measure_sums or {})
        self.processor_seconds = processor_seconds
        self.learning_rate = self.gradient_norm = 0.0

    def add(self, metrics: StepMetrics, seconds: float, processor_seconds: float = 0.0) -> None:
        """Adds the steps of one call, which took `seconds`, and so many of all cores of the processor together."""
        # One by one, because the sums must not depend on how many steps a call had.
        for step, tokens in enumerate(metrics.tokens.tolist()):
            self.loss_sum += float(metrics.loss[step]) * tokens
            for name, values in metrics.measures.items():
                self.measure_sums[name] = self.measure_sums.get(name, 0.0) + float(values[step]) * tokens
            self.tokens += tokens
        self.seconds += seconds  # of training alone, without validations
        self.processor_seconds += processor_seconds
        self.learning_rate = float(metrics.learning_rate[-1])
        self.gradient_norm = float(metrics.gradient_norm[-1])

    def sums(self) -> list[Any]:
        """The constructor's arguments, for a checkpoint."""
        return [self.loss_sum, self.tokens, self.seconds, self.measure_sums, self.processor_seconds]

    def summary(self) -> dict[str, float]:
        """The numbers of a log line."""
        return {
            "loss": self.loss_sum / self.tokens,
            "tokens": int(self.tokens),
            "learning_rate": self.learning_rate,
            "gradient_norm": self.gradient_norm,
            "seconds": self.seconds,
            "processor_seconds": self.processor_seconds,
            **{name: total / self.tokens for name, total in self.measure_sums.items()},
        }
