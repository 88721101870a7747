"""The training loop."""

import contextlib
import itertools
import signal
import time
from collections.abc import Iterator
from types import FrameType
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.config import Config
from t2t_keras.data.batching import EpochPlans, Position
from t2t_keras.data.pipeline import share_shape, training_dataset
from t2t_keras.data.prepare import PreparedData
from t2t_keras.decoding.translator import Translator
from t2t_keras.errors import InputError
from t2t_keras.model import Transformer
from t2t_keras.run import Run
from t2t_keras.training import checkpoints
from t2t_keras.training.background import CheckpointWriter
from t2t_keras.training.monitor import Monitor, SilentMonitor
from t2t_keras.training.step import StepMetrics, TrainingStep
from t2t_keras.training.validation import Validator


class Outcome(NamedTuple):
    """How a training ended.

    Attributes:
        step: updates made in all.
        reason: in words.
        signal: the number of the signal that stopped it, or 0.
    """

    step: int
    reason: str
    signal: int


class Trainer:
    """Trains a run from wherever it stands.

    Args:
        run: where everything is kept.
        config: resolved, its vocabulary size that of the data.
        data: the prepared corpus.
        strategy: the replicas.

    Raises:
        InputError: the run was begun with other settings, or another process trains it.
    """

    def __init__(self, run: Run, config: Config, data: PreparedData, strategy: tf.distribute.Strategy) -> None:
        self.run, self.config, self.data, self.strategy = run, config, data, strategy
        self.is_chief = _is_chief(strategy)
        if self.is_chief:
            with run.lock():
                run.remove_leftovers()
                checkpoints.remove_leftovers(run.checkpoints_path)
                if not checkpoints.steps(run.checkpoints_path):
                    # Nothing was trained yet: whoever was told to lower a setting may do so.
                    run.config_path.unlink(missing_ok=True)
                run.start(config, data.directory, data.vocab_path)
        self.writer = CheckpointWriter(run.checkpoints_path, config.train.keep_checkpoints)
        self.corpus = data.split("train")
        self.plans = EpochPlans(
            self.corpus.source_lengths,
            self.corpus.target_lengths,
            config.train.tokens_per_batch,
            config.train.seed,
            config.train.static_shapes,
        )
        keras.utils.set_random_seed(config.train.seed)
        keras.config.set_dtype_policy("mixed_bfloat16" if config.train.mixed_bfloat16 else "float32")
        with strategy.scope():
            model = Transformer(config.model)
            model.build()
        self.training = TrainingStep(model, config.train, strategy)
        self.validator = Validator(
            self.training,
            config,
            data.split("valid"),
            data.text("valid"),
            Translator(data.tokenizer, model, config.decode, config.data.lowercase),
            self._replica_ids(),
        )
        self.step, self.position, self.interval = 0, Position(), _Interval()
        self.best: float | None = None
        self.validations_without_gain = 0
        self._signal = 0

    def train(self) -> Outcome:
        """Runs until a limit, a signal or a lack of progress ends it; the last step is saved.

        Raises:
            InputError: memory ran out on the largest batch, the loss is no longer a number, a checkpoint cannot be
                saved, or another process trains the run.
        """
        with self._run_locked():
            return self._train()

    def _train(self) -> Outcome:
        self._restore()
        done = self.step >= self.config.train.max_steps
        if reason := "had reached train.max_steps before" if done else self._lack_of_progress():
            return Outcome(self.step, reason, 0)
        self._try_largest_batch()
        monitor = SilentMonitor()
        if self.is_chief:
            train = self.config.train
            monitor = Monitor(self.run, train.max_steps, self.step, train.max_minutes)
        handlers = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            return self._loop(monitor)
        finally:
            try:
                self.writer.close()
            finally:  # one more Ctrl-C does not wait for that either
                for number, handler in handlers.items():
                    signal.signal(number, handler)
                monitor.close()

    @contextlib.contextmanager
    def _run_locked(self) -> Iterator[None]:
        """The run is this trainer's alone, and of its configuration, as long as the context lasts."""
        if not self.is_chief:
            yield
            return
        with self.run.lock():
            self.run.start(self.config, self.data.directory, self.data.vocab_path)
            yield

    def _loop(self, monitor: Monitor | SilentMonitor) -> Outcome:
        train = self.config.train
        batches = self._training_batches()
        begun = saved = time.monotonic()
        last_saved = self.step
        reason = ""
        while not reason:
            steps = self._steps_to_next_event()
            started = time.monotonic()
            metrics = self.training.run(batches, steps)
            now = time.monotonic()
            self._check_finite(metrics)
            self.step += steps
            self.position = self.plans.advance(self.position, steps)
            self.interval.add(metrics, now - started)
            monitor.progress(self.step)
            if self.step % train.log_steps == 0:
                monitor.log_training(self.step, **self.interval.summary())
                self.interval = _Interval()
            reason = self._reason_to_stop((now - begun) / 60)
            checkpoint_due = (
                now - saved >= train.checkpoint_minutes * 60
                if train.checkpoint_minutes
                else self.step % train.checkpoint_steps == 0
            )
            validation_due = self.step % train.validation_steps == 0 if train.validation_steps else checkpoint_due
            if checkpoint_due or validation_due or (reason and self.step != last_saved):
                is_validated = validation_due or bool(reason and not self._signal)
                improved = is_validated and self._validate(monitor)
                monitor.sync()
                self._save(improved)
                last_saved, saved = self.step, time.monotonic()
                reason = reason or self._lack_of_progress()
        self.writer.finish(is_in_a_hurry=lambda: bool(self._signal))
        return Outcome(self.step, reason, self._signal)

    def _steps_to_next_event(self) -> int:
        """Steps until something has to be done in Python, at most `steps_per_call`."""
        train = self.config.train
        periods = [train.log_steps, train.validation_steps, 0 if train.checkpoint_minutes else train.checkpoint_steps]
        waits = [period - self.step % period for period in periods if period]
        return min(train.steps_per_call, train.max_steps - self.step, *waits)

    def _reason_to_stop(self, minutes: float) -> str:
        train = self.config.train
        if self._signal:
            return f"stopped by {signal.Signals(self._signal).name}; the same command goes on from here"
        if self.step >= train.max_steps:
            return "reached train.max_steps"
        if train.max_minutes and minutes >= train.max_minutes:
            return "reached train.max_minutes"
        return ""

    def _lack_of_progress(self) -> str:
        patience = self.config.train.patience
        if patience and self.validations_without_gain >= patience:
            return f"no better validation {self.config.train.best_metric} in {patience} validations"
        return ""

    def _validate(self, monitor: Monitor | SilentMonitor) -> bool:
        """Validates, and says whether the result is the best so far."""
        validation = self.validator.validate()
        monitor.log_validation(self.step, **validation._asdict())
        if not np.isfinite(validation.loss):  # such weights must not be saved
            raise self._divergence(self.step, self.position, f"validation loss {validation.loss}")
        by_loss = self.config.train.best_metric == "loss"
        gain = -validation.loss if by_loss else validation.bleu
        improved = self.best is None or gain > self.best
        self.best = gain if improved else self.best
        self.validations_without_gain = 0 if improved else self.validations_without_gain + 1
        return improved

    def _save(self, improved: bool) -> None:
        if not self.is_chief:
            return
        self.writer.wait()  # before everything is copied once more
        state = self.training.read()
        self.writer.save(
            self.step,
            state["weights"],
            {f"{part}/{name}": array for part in _MOMENTS for name, array in state[part].items()},
            {
                "epoch": self.position.epoch,
                "batch": self.position.batch,
                "seed": self.config.train.seed,
                "interval": self.interval.sums(),
                "best": self.best,
                "improved": improved,
                "validations_without_gain": self.validations_without_gain,
                "config": self.config.to_dict(),
            },
            state.get("ema"),
            checkpoints.Best(self.step, self.config.train.best_metric, abs(self.best)) if improved else None,
        )

    def _restore(self) -> None:
        """Takes up the newest checkpoint that is whole, if there is one."""
        saved = checkpoints.latest(self.run.checkpoints_path)
        if saved is None:
            return
        arrays = {"weights": saved.weights, **{part: {} for part in _MOMENTS}}
        for key, array in saved.optimizer.items():
            part, _, name = key.partition("/")
            arrays[part][name] = array
        if self.config.train.ema_decay:
            arrays["ema"] = saved.ema or saved.weights
        self.training.write(arrays, saved.step)
        self.step = saved.step
        self.position = Position(saved.state["epoch"], saved.state["batch"])
        self.interval = _Interval(*saved.state.get("interval", []))
        self.best = saved.state["best"]
        self.validations_without_gain = saved.state["validations_without_gain"]
        if self.is_chief and saved.state.get("improved"):
            # Again, for it may have been killed in between.
            checkpoints.set_best(self.run.checkpoints_path, self.step, self.config.train.best_metric, abs(self.best))

    def _try_largest_batch(self) -> None:
        """Runs one step on the largest batch and takes it back: memory runs out now or not at all."""
        state = self.training.read()
        replicas, parts = self.strategy.num_replicas_in_sync, self.config.train.accumulation_steps
        for shape in self.plans.largest_shapes(self.position.epoch):
            rows, source_len, target_len = share_shape(shape, replicas, parts)
            element = {
                "source": np.ones((rows, source_len), np.int32),
                "target": np.ones((rows, target_len), np.int32),
            }
            try:
                self.training.run(self._distributed(_repeated(element)), 1)
            except tf.errors.ResourceExhaustedError as error:
                raise InputError(
                    f"out of memory on the largest batch ({rows} rows of {source_len} source and {target_len} target "
                    f"tokens on each replica): lower train.tokens_per_batch={self.config.train.tokens_per_batch} or "
                    f"raise train.accumulation_steps={parts} ({str(error).splitlines()[0][:120]})"
                ) from None
        self.training.write(state, self.step)

    def _training_batches(self) -> tf.distribute.DistributedIterator:
        """This worker's shares of the batches from the position on."""
        return self._distributed(
            training_dataset(
                self.corpus,
                self.plans,
                self.position,
                self.strategy.num_replicas_in_sync,
                self._replica_ids(),
                self.config.train.accumulation_steps,
            )
        )

    def _distributed(self, dataset: tf.data.Dataset) -> tf.distribute.DistributedIterator:
        """Consecutive elements to consecutive local replicas."""
        return iter(self.strategy.distribute_datasets_from_function(lambda _: dataset))

    def _replica_ids(self) -> range:
        """This worker's replicas among all."""
        resolver = self.strategy.cluster_resolver
        replicas = self.strategy.num_replicas_in_sync
        if not isinstance(self.strategy, tf.distribute.MultiWorkerMirroredStrategy) or resolver.task_id is None:
            return range(replicas)
        workers = len(resolver.cluster_spec().as_dict()["worker"])
        local = replicas // workers
        return range(resolver.task_id * local, (resolver.task_id + 1) * local)

    def _check_finite(self, metrics: StepMetrics) -> None:
        finite = np.isfinite(metrics.loss) & np.isfinite(metrics.gradient_norm)
        if finite.all():
            return
        bad = int(np.argmin(finite))
        raise self._divergence(
            self.step + bad + 1,
            self.plans.advance(self.position, bad),
            f"loss {metrics.loss[bad]}, gradient norm {metrics.gradient_norm[bad]}, "
            f"learning rate {metrics.learning_rate[bad]:.3g}",
        )

    def _divergence(self, step: int, position: Position, numbers: str) -> InputError:
        self.writer.join()
        saved = checkpoints.latest(self.run.checkpoints_path, weights_only=True)
        return InputError(
            f"training diverged at step {step}: {numbers}, epoch {position.epoch}, batch {position.batch}; "
            f"the last good checkpoint is {saved.path if saved else 'none'}. "
            "Lower train.learning_rate_scale, raise train.warmup_steps or set train.clip_norm"
        )

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self._signal == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt  # asked twice: at once, without saving
        self._signal = number


_MOMENTS = ("first_moments", "second_moments")


class _Interval:
    """Metrics summed up since the last line of the log; goes into checkpoints, so that no line covers less."""

    def __init__(self, loss_sum: float = 0.0, tokens: float = 0.0, seconds: float = 0.0) -> None:
        self.loss_sum, self.tokens, self.seconds = loss_sum, tokens, seconds
        self.learning_rate = self.gradient_norm = 0.0

    def add(self, metrics: StepMetrics, seconds: float) -> None:
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
        return {
            "loss": self.loss_sum / self.tokens,
            "tokens": int(self.tokens),
            "learning_rate": self.learning_rate,
            "gradient_norm": self.gradient_norm,
            "seconds": self.seconds,
        }


def _repeated(element: dict[str, np.ndarray]) -> tf.data.Dataset:
    """One element without end, in the form of the training batches."""
    ids = tf.TensorSpec([None, None], tf.int32)
    return tf.data.Dataset.from_generator(
        lambda: itertools.repeat(element), output_signature={"source": ids, "target": ids}
    )


def _is_chief(strategy: tf.distribute.Strategy) -> bool:
    resolver = strategy.cluster_resolver
    return resolver is None or not resolver.task_id
