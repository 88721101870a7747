"""Training records: progress bar, metrics.jsonl, TensorBoard and curves.svg.

`metrics.jsonl` has one JSON object per line with "step", "kind" ("train" or "valid") and the metrics.
"""

import contextlib
import dataclasses
import sys
from pathlib import Path
from typing import Any

import tensorflow as tf
from matplotlib.figure import Figure
from tqdm import tqdm

from t2t_keras.errors import InputError
from t2t_keras.machine.files import is_full
from t2t_keras.machine.standard_error import tell
from t2t_keras.pictures.colors import color, marker
from t2t_keras.pictures.saving import save
from t2t_keras.runs.records import RecordFile
from t2t_keras.runs.run import Run
from t2t_keras.tasks.registry import TASKS
from t2t_keras.training.updates import StepMetrics

# TensorFlow's errors for a full disk or an exhausted quota, and for a file at its size limit.
_FULL_DISK = (tf.errors.ResourceExhaustedError, tf.errors.OutOfRangeError)

# Panels of curves.svg: title, whether the y axis is logarithmic, and curves (kind of record, metric, label).
_PANELS: list[tuple[str, bool, list[tuple[str, str, str]]]] = [
    ("loss per token", False, [("train", "loss", "training"), ("valid", "loss", "validation")]),
    ("learning rate", False, [("train", "learning_rate", "learning rate")]),
    ("gradient norm", True, [("train", "gradient_norm", "gradient norm")]),
    ("validation score", False, [("valid", kind.metric, kind.metric.upper()) for kind in TASKS.values()]),
    ("GLEU of samples", False, [("train", "sampled_gleu", "GLEU")]),
]


@dataclasses.dataclass
class Interval:
    """Metrics summed since the last log line; saved in checkpoints, so that a resumed interval is complete."""

    loss_sum: float = 0.0
    tokens: float = 0.0
    seconds: float = 0.0
    measure_sums: dict[str, float] = dataclasses.field(default_factory=dict)
    processor_seconds: float = 0.0
    learning_rate: float = dataclasses.field(default=0.0, init=False)
    gradient_norm: float = dataclasses.field(default=0.0, init=False)

    def add(self, metrics: StepMetrics, seconds: float, processor_seconds: float = 0.0) -> None:
        """Adds the steps of one call.

        Args:
            metrics: metrics of the steps.
            seconds: wall-clock duration of the call.
            processor_seconds: processor time of the call, summed over all cores.
        """
        # Step by step, because the sums must not depend on how the steps were grouped into calls.
        for step, tokens in enumerate(metrics.tokens.tolist()):
            self.loss_sum += float(metrics.loss[step]) * tokens
            for name, values in metrics.measures.items():
                self.measure_sums[name] = self.measure_sums.get(name, 0.0) + float(values[step]) * tokens
            self.tokens += tokens
        self.seconds += seconds  # of training only, without validations
        self.processor_seconds += processor_seconds
        self.learning_rate = float(metrics.learning_rate[-1])
        self.gradient_norm = float(metrics.gradient_norm[-1])

    def loss(self) -> float:
        """Returns the mean loss per target token."""
        return self.loss_sum / self.tokens

    def sums(self) -> list[Any]:
        """Returns the constructor's arguments, to be saved in a checkpoint."""
        return [self.loss_sum, self.tokens, self.seconds, dict(self.measure_sums), self.processor_seconds]


class Monitor:
    """Records the training of a run, in the chief process; a resumed run continues its records.

    Args:
        run: the run.
        total_steps: the largest number of steps.
        start_step: the step that training resumes from. Records of later steps are dropped, because those run again.
        is_validation_due: whether the validation of `start_step` is still to come, so that its record is dropped.
    """

    def __init__(
        self,
        run: Run,
        total_steps: int,
        start_step: int = 0,
        *,
        is_validation_due: bool = False,
    ) -> None:
        self._run = run
        train = run.config.train if run.exists else None
        smoothing = f", label smoothing {train.label_smoothing:g}" if train and train.label_smoothing else ""
        dropout = ", with dropout" if run.exists and vars(run.config.model).get("dropout_rate") else ""
        self._training_label = f"training{dropout}{smoothing}"  # says why it exceeds the validation loss
        self._total_steps = total_steps
        self._metrics = RecordFile(run.metrics_path, start_step, start_step - is_validation_due)
        self._records = list(self._metrics.records)
        # The next line covers all steps since the last line, including those before training was stopped.
        self._last_step = max((record["step"] for record in self._records if record["kind"] == "train"), default=0)
        self._summaries: tf.summary.SummaryWriter | None = None
        # Object storage does not keep the TensorBoard files of a run.
        are_missing = bool(self._records) and not run.tensorboard_path.is_dir()
        self._summaries_are_whole = not (self._metrics.is_shorter or are_missing)
        self._write_summaries()
        self._metrics.open()  # last: if the process is killed before, the next start still finds the records to drop
        self._bar = None
        if sys.stderr.isatty():
            self._bar = tqdm(
                total=total_steps,
                initial=start_step,
                file=sys.stderr,
                dynamic_ncols=True,
                bar_format="{l_bar}{bar}| {n_fmt}/{total_fmt}{postfix}",
            )

    def progress(self, step: int, expected_steps: int) -> None:
        """Updates the progress bar; cheap enough to call on every return to Python.

        Args:
            step: the number of steps done.
            expected_steps: the number of steps at which training is expected to end.
        """
        if self._bar is not None:
            self._bar.total = expected_steps
            self._bar.update(step - self._bar.n)

    def log_training(self, step: int, expected_steps: int, interval: Interval) -> None:
        """Records the metrics of the steps since the last call; see `progress`."""
        rates = {
            "steps_per_second": (step - self._last_step) / max(interval.seconds, 1e-9),
            "tokens_per_second": interval.tokens / max(interval.seconds, 1e-9),
        }
        self._last_step = step
        loss, learning_rate, gradient_norm = interval.loss(), interval.learning_rate, interval.gradient_norm
        measures = {name: total / interval.tokens for name, total in interval.measure_sums.items()}
        numbers = {"loss": loss, "learning_rate": learning_rate, "gradient_norm": gradient_norm, **measures}
        times = {"seconds": interval.seconds, "processor_seconds": interval.processor_seconds}
        self._record(step, "train", {**numbers, "tokens": int(interval.tokens), **times, **rates})
        measures_text = "".join(f", {name.replace('_', ' ')} {value:.3f}" for name, value in measures.items())
        numbers_text = f"loss {loss:.3f}{measures_text}, learning rate {learning_rate:.1e}"
        rate_text = f"{rates['tokens_per_second']:,.0f} tokens/s"
        steps_left, steps_per_second = expected_steps - step, rates["steps_per_second"]
        time_text = f"{tqdm.format_interval(steps_left / steps_per_second) if steps_per_second else '?'} left"
        if self._bar is None:
            is_exact = expected_steps == self._total_steps
            total_text = f"/{expected_steps:,}" if is_exact else f" of about {expected_steps:,}"
            self._say(
                f"step {step:,}{total_text}: {numbers_text}, gradient norm {gradient_norm:.2f}, "
                f"{rates['steps_per_second']:.2f} steps/s, {rate_text}, {time_text}"
            )
        else:  # fits in 80 columns
            short_text = numbers_text.replace("learning rate", "lr")
            self._bar.set_postfix_str(f"{short_text}, {rate_text}, {time_text}", refresh=False)
            self.progress(step, expected_steps)
            self._bar.refresh()

    def log_validation(self, step: int, *, loss: float, perplexity: float, **scores: float | None) -> None:
        """Records a validation and redraws the curves.

        Args:
            step: the validated step.
            loss: loss per target token.
            perplexity: perplexity per target token.
            **scores: further metrics, such as `bleu`; None if not measured.
        """
        values = {name: value for name, value in scores.items() if value is not None}
        numbers = {"loss": loss, "perplexity": perplexity, **values}
        self._record(step, "valid", numbers)
        text = ", ".join(f"{name} {float(value):.3f}" for name, value in numbers.items())
        self._say(f"step {step:,}: validation {text}")
        self.draw_curves()

    def _say(self, text: str) -> None:
        """Prints a line on stderr, above the progress bar if there is one."""
        if self._bar is None:
            tell(text)
        else:
            with contextlib.suppress(OSError):  # like `tell`, and like the bar itself
                self._bar.write(text, file=sys.stderr)

    def draw_curves(self) -> None:
        """Writes curves.svg from all records; does nothing if the disk is full."""
        try:
            _draw(self._records, self._run.curves_path, self._training_label)
        except OSError as error:
            if not is_full(error):
                raise

    def sync(self) -> None:
        """Syncs metrics.jsonl to disk, because the next checkpoint relies on its lines."""
        self._metrics.sync()

    def close(self) -> None:
        """Draws the curves, and closes the records and the progress bar."""
        if self._metrics.is_closed:
            return
        self.draw_curves()
        self._metrics.close()
        self._write_summaries()
        if self._summaries is not None:
            self._summaries.close()
        if self._bar is not None:
            self._bar.close()

    def _record(self, step: int, kind: str, numbers: dict[str, Any]) -> None:
        """Appends a record to all outputs, where it is visible at once."""
        plain = {name: value if isinstance(value, int) else float(value) for name, value in numbers.items()}
        record = {"step": int(step), "kind": kind, **plain}
        self._records.append(record)
        self._metrics.append(record)
        self._write_summaries(record)

    def _write_summaries(self, *records: dict[str, Any]) -> None:
        """Writes records as TensorBoard scalars; rewrites all files if they are stale or incomplete."""
        try:
            if not self._summaries_are_whole:
                for events in self._run.tensorboard_path.glob("events.out.tfevents.*"):
                    events.unlink()
                self._summaries, records = None, tuple(self._records)
            if self._summaries is None:
                self._summaries = tf.summary.create_file_writer(str(self._run.tensorboard_path))
            with self._summaries.as_default():
                for record in records:
                    for name, value in record.items():
                        if name not in ("step", "kind") and value is not None:
                            tf.summary.scalar(f"{record['kind']}/{name}", value, step=record["step"])
            self._summaries.flush()
            self._summaries_are_whole = True
        except _FULL_DISK:
            self._summaries, self._summaries_are_whole = None, False
        except tf.errors.OpError as error:
            raise InputError(f"{self._run.tensorboard_path}: cannot be written: {error.message}") from error


class SilentMonitor:
    """A monitor without effect, for all workers except the chief."""

    def progress(self, *_: Any, **__: Any) -> None:
        """Does nothing."""

    log_training = log_validation = draw_curves = sync = close = progress


def _draw(records: list[dict[str, Any]], path: Path, training_label: str) -> None:
    panels = []
    for title, is_logarithmic, curves in _PANELS:
        series: dict[str, list[tuple[int, float]]] = {}
        for kind, name, label in curves:
            pairs = [(r["step"], r[name]) for r in records if r["kind"] == kind and r.get(name) is not None]
            if pairs:
                series[training_label if label == "training" else label] = pairs
        if series:
            panels.append((title, is_logarithmic, series))
    if not panels:
        return
    columns = len(panels) if len(panels) < 4 else 2  # three panels in two columns would leave a gap
    grid_rows = -(-len(panels) // columns)
    figure = Figure(figsize=(6 * columns, 4 * grid_rows), layout="constrained")
    for place, (title, is_logarithmic, series) in enumerate(panels, start=1):
        axes = figure.add_subplot(grid_rows, columns, place)
        for number, (label, points) in enumerate(series.items()):
            shape = marker(number) if len(points) < 50 else None
            axes.plot(*zip(*points, strict=True), label=label, color=color(number), marker=shape, markersize=3)
        axes.set(title=title, xlabel="step", yscale="log" if is_logarithmic else "linear")
        axes.grid(alpha=0.3)
        if len(series) > 1:
            axes.legend()
        elif label != title:
            axes.set_ylabel(label)
    save(figure, path)
