"""The training loop."""

import contextlib
import dataclasses
import json
import math
import signal
import time
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.config import Config, differences
from t2t_keras.config.decode_config import EngineName
from t2t_keras.data.batching import EpochPlans, Position
from t2t_keras.data.pipeline import raising, training_dataset
from t2t_keras.data.prepare import PreparedData
from t2t_keras.errors import InputError
from t2t_keras.inference.ctranslate2_engine import CTranslate2Engine, unsupported
from t2t_keras.inference.translator import Translator
from t2t_keras.inference.translator_settings import TranslatorSettings
from t2t_keras.machine.remote import publishing, with_urls
from t2t_keras.machine.standard_error import tell
from t2t_keras.models.contract import SequenceModel
from t2t_keras.models.families import make_model
from t2t_keras.runs import checkpoints
from t2t_keras.runs.background import CheckpointWriter
from t2t_keras.runs.run import Run, RunCheckpoint, scores_differ
from t2t_keras.tasks.registry import task
from t2t_keras.training.backends import (
    Devices,
    computed_with,
    devices_line,
    in_host_memory,
    is_on_jax,
    make_step,
    make_workers,
)
from t2t_keras.training.devices.largest_batch import try_largest_batch
from t2t_keras.training.devices.strategy import distributed
from t2t_keras.training.monitor import Interval, Monitor, SilentMonitor
from t2t_keras.training.run_start import prepare_run, take_weights
from t2t_keras.training.stop_signals import SIGNALS, StopSignals
from t2t_keras.training.training_text import mixture_of, training_pairs
from t2t_keras.training.updates import StepMetrics
from t2t_keras.training.validation import Validator


class Outcome(NamedTuple):
    """The outcome of a training.

    Attributes:
        step: total number of updates.
        reason: why training ended, in words.
        signal: number of the signal that stopped training, or 0.
    """

    step: int
    reason: str
    signal: int


class Trainer:
    """Trains a run, from its newest checkpoint if it has one. Every worker creates a trainer.

    Args:
        run: the run.
        config: resolved configuration, with the vocabulary size of the data.
        data: the prepared data.
        strategy: the devices; see `make_devices`.
        init_from: the run whose weights initialise those weights of a new run that have the same names. A resumed run
            does not take them again. None means random initialisation.

    Attributes:
        account: a report in lines on the weights that were taken from `init_from`; empty if none were.

    Raises:
        InputError: settings contradict each other; the run started with different settings, vocabulary, text or initial
            weights; another process trains the run; the workers have different settings or data; or the weights of
            `init_from` do not fit.
    """

    def __init__(
        self,
        run: Run,
        config: Config,
        data: PreparedData,
        strategy: Devices,
        init_from: RunCheckpoint | None = None,
    ) -> None:
        if config.train.jit_compile and not config.train.static_shapes:
            raise InputError("train.jit_compile=true needs train.static_shapes=true: XLA recompiles for every shape")
        self._metric = task(config.data.task).metric
        if config.train.best_metric not in ("loss", self._metric):
            raise InputError(
                f"train.best_metric={config.train.best_metric}: valid for {config.data.task}: loss, {self._metric}"
            )
        self.run, self.config, self.data, self.strategy = run, config, data, strategy
        self.workers = make_workers(strategy)
        self.corpus = training_pairs(config, data)
        with self.workers.raising_worker_lost():
            first, *_ = self.workers.gather(json.dumps(config.to_dict()).encode())
            with self.workers.fail_together():
                if changed := differences(Config.from_dict(json.loads(first)), config):
                    difference = f"worker {self.workers.index} has different settings than worker 0"
                    raise InputError(f"{difference}: {'; '.join(changed)}")
            lengths = self.corpus.source_lengths, self.corpus.target_lengths  # the epoch plans depend on these
            sums = ", ".join(f"{zlib.crc32(side.data):08x}" for side in lengths)
            self._text = f"{len(lengths[0]):,} pairs ({sums}), text {data.training_text}"
            self.workers.check_same("data", self._text)
            train, mixture = config.train, mixture_of(config, data)
            self.plans = EpochPlans(*lengths, train.tokens_per_batch, train.seed, train.static_shapes, mixture)
            if train.checkpoint_epochs:
                train = dataclasses.replace(train, checkpoint_steps=self.plans.num_batches(train.checkpoint_epochs))
                self.config = config = dataclasses.replace(config, train=train)
            origin = prepare_run(run, config, data, self._text, init_from, self.workers)
        self.writer = CheckpointWriter(run.checkpoints_path, config.train.keep_checkpoints, publishing(run.path))
        if config.train.deterministic:
            tf.config.experimental.enable_op_determinism()
        keras.utils.set_random_seed(config.train.seed)
        with self.workers.raising_worker_lost(), in_host_memory():
            model = make_model(config.model, "mixed_bfloat16" if config.train.mixed_bfloat16 else "float32")
            self.account = [] if origin is None else take_weights(model, origin, self.workers)
            self.training = make_step(model, config.train, strategy)
        self.validator = Validator(
            self.training,
            config,
            data.split("valid"),
            data.text("valid"),
            self._translators(model),
            self.workers,
        )
        self.step, self.position, self.interval = 0, Position(), Interval()
        self.validations: list[checkpoints.ValidationRecord] = []
        self.decay_end: int | None = None  # last step, once the time limit has started the learning rate's decay
        self.is_validation_on_time = True  # False for an additional validation at a limit
        self.is_validation_due = False  # whether the newest checkpoint is still to be validated
        self.signals = StopSignals()
        self._restore_lines: list[str] = []  # one line about the checkpoint if training resumes

    def _translators(self, model: SequenceModel) -> Callable[[], Translator]:
        """Returns a function that creates a translator with the model's current weights, for validation.

        Raises:
            InputError: sentences are to be translated on JAX, which has no search, and CTranslate2 is not installed or
                does not support the model, the decoding settings or the task.
        """

        def make(engine: EngineName | CTranslate2Engine = "tensorflow") -> Translator:
            settings = TranslatorSettings(self.config.decode, engine=engine)
            return Translator(self.data.tokenizer, model, settings, self.config.data)

        if not is_on_jax():
            translator = make()
            return lambda: translator
        engine, data = CTranslate2Engine(longest_source=self.config.data.max_length), self.data
        if count := self.config.train.validation_sentences:
            if reason := unsupported(model, self.config.decode, (), task(data.config.task).form(data.tokenizer)):
                raise InputError(
                    f"train.validation_sentences={count}: on JAX sentences are translated by CTranslate2, which does "
                    f"not support {reason}; 0 disables these translations"
                )
            make(engine)
        return lambda: make(engine)

    def train(self) -> Outcome:
        """Trains until a limit, a signal or a lack of progress ends training, and saves the last step.

        Raises:
            InputError: the largest batch does not fit in memory, training diverged, a checkpoint cannot be saved or
                restored, another process trains the run, or the workers see different checkpoints.
            WorkerLostError: another worker is lost.
        """
        with self.workers.raising_worker_lost(), contextlib.ExitStack() as stack:
            with self.workers.fail_together():
                if self.workers.is_chief:
                    stack.enter_context(self.run.lock())
                    self.run.start(self.config, self.data.directory, self.data.vocab_path, text=self._text)
            return self._train()

    def _train(self) -> Outcome:
        self._restore()
        with self.workers.fail_together():
            if self.workers.is_chief:  # after restoring, so that nothing is removed if that fails
                checkpoints.remove_leftovers(self.run.checkpoints_path)
        reason = "had reached train.max_steps before" if self._is_done() else self._lack_of_progress()
        if reason and not self.is_validation_due:
            return Outcome(self.step, reason, 0)
        if self.workers.is_chief:  # printed before tracing, which takes a while without any output
            parameters = sum(math.prod(weight.shape) for weight in self.training.model.trainable_variables)
            size = f"{parameters:,} parameters with {len(self.corpus.source_lengths):,} pairs"
            headline = f"training {size} on {devices_line(self.strategy)}; tracing the first steps takes a while"
            tell(headline, *self._restore_lines)
        try_largest_batch(self.training, self.plans, self.position.epoch)
        monitor: Monitor | SilentMonitor = SilentMonitor()
        with self.workers.fail_together():
            if self.workers.is_chief:
                train = self.config.train
                monitor = Monitor(self.run, train.max_steps, self.step, is_validation_due=self.is_validation_due)
        with contextlib.closing(monitor), self.signals, self.writer:
            return self._loop(monitor)

    def _loop(self, monitor: Monitor | SilentMonitor) -> Outcome:
        train = self.config.train
        replicas = self.strategy.num_replicas_in_sync, self.workers.replica_ids
        errors: list[Exception] = []
        dataset = training_dataset(
            self.corpus, self.plans, self.position, *replicas, train.accumulation_steps, on_error=errors.append
        )
        batches = distributed(self.strategy, dataset)
        start = save_time = time.monotonic()
        pace = _Pace(train.max_minutes)
        reason, stopped_by = "", 0
        if self.is_validation_due:
            self._validate(monitor)
            reason = self._end() if self._is_done() else self._lack_of_progress()
        while not reason:
            steps = self._steps_to_next_event()
            started, processor_started = time.monotonic(), time.process_time()
            with raising(errors):
                metrics = self.training.run(batches, steps)
            now = time.monotonic()
            self._check_finite(metrics)
            self.step += steps
            self.position = self.plans.advance(self.position, steps)
            self.interval.add(metrics, now - started, time.process_time() - processor_started)
            pace.add(steps, now)
            # The time limit may end training long before max_steps.
            expected_steps = self.decay_end or int(min(train.max_steps, self.step + pace.steps_left(now)))
            monitor.progress(self.step, expected_steps)
            if self.step % train.log_steps == 0:
                with self.workers.fail_together():
                    monitor.log_training(self.step, expected_steps, self.interval)
                self.interval = Interval()
            decision = self._decide((now - start) / 60, (now - save_time) / 60, pace.steps_left(now))
            if decision.decay_steps:
                self.decay_end = self.training.last_step = self.step + decision.decay_steps
            reason = self._reason_to_stop(decision)
            checkpoint_due = (
                decision.is_checkpoint_due if train.checkpoint_minutes else self.step % train.checkpoint_steps == 0
            )
            validation_due = self.step % train.validation_steps == 0 if train.validation_steps else checkpoint_due
            stopped_by = decision.signal
            if checkpoint_due or validation_due or reason:
                self.is_validation_due = validation_due or bool(reason and not stopped_by)
                self.is_validation_on_time = validation_due
                self._save(monitor)
                if self.is_validation_due and not stopped_by:
                    self._validate(monitor)
                save_time = time.monotonic()
                reason = reason or self._lack_of_progress()
        with self.workers.fail_together():  # no worker ends before everything is written
            self.writer.wait()
        return Outcome(self.step, reason, stopped_by)

    def _steps_to_next_event(self) -> int:
        """Returns the number of steps until the next event that Python handles, at most `steps_per_call`."""
        train = self.config.train
        periods = [train.log_steps, train.validation_steps, 0 if train.checkpoint_minutes else train.checkpoint_steps]
        waits = [period - self.step % period for period in periods if period]
        return min(train.steps_per_call, self.training.last_step - self.step, *waits)

    def _decide(self, minutes: float, minutes_since_saved: float, steps_left: float) -> "_Decision":
        """Agrees on the next action with the other workers.

        A stop signal of any worker counts. The chief's clock decides about time.

        Args:
            minutes: minutes since training started in this process.
            minutes_since_saved: minutes since the last checkpoint.
            steps_left: estimated number of steps until the time limit; infinite if unknown.
        """
        train = self.config.train
        is_over = bool(train.max_minutes) and minutes >= train.max_minutes and self.decay_end is None
        is_due = bool(train.checkpoint_minutes) and minutes_since_saved >= train.checkpoint_minutes
        begins_decay = self.decay_end is None and steps_left <= min(train.decay_steps, train.max_steps - self.step)
        decay_steps = max(int(steps_left), 1) if begins_decay and not is_over else 0
        signals = [self.signals.received == number for number in SIGNALS]
        times = [number if self.workers.is_chief else 0 for number in (is_over, is_due, decay_steps)]
        *signals, is_over, is_due, decay_steps = self.workers.sum([*signals, *times]).tolist()
        stopped_by = next((number for number, is_received in zip(SIGNALS, signals, strict=True) if is_received), 0)
        if self._is_done():  # nothing is left to resume, so a signal changes nothing
            stopped_by = 0
        return _Decision(stopped_by, bool(is_over), bool(is_due), decay_steps)

    def _reason_to_stop(self, decision: "_Decision") -> str:
        if decision.signal:
            return f"stopped by {signal.Signals(decision.signal).name}; run the same command to resume"
        if self._is_done():
            return self._end()
        if decision.is_time_over:
            return "reached train.max_minutes"
        return ""

    def _is_done(self) -> bool:
        return self.step >= self.training.last_step

    def _end(self) -> str:
        """Returns the reason to stop at the last step: the limit that set this step."""
        return "reached train.max_steps" if self.decay_end is None else "reached train.max_minutes"

    def _lack_of_progress(self) -> str:
        patience = self.config.train.patience
        # An additional validation at a limit must not count towards `patience`.
        gains = [validation.gain for validation in self.validations if validation.is_scheduled]
        if patience and gains and len(gains) - 1 - gains.index(max(gains)) >= patience:
            return f"no better validation {self.config.train.best_metric} in {patience} validations"
        return ""

    def _validate(self, monitor: Monitor | SilentMonitor) -> None:
        """Validates the checkpoint just saved, and completes it.

        Raises:
            InputError: the loss is not finite; the checkpoint is deleted.
        """
        loss, perplexity, score = self.validator.validate()
        with self.workers.fail_together():
            monitor.log_validation(self.step, loss=loss, perplexity=perplexity, **{self._metric: score})
        if not np.isfinite(loss):
            with self.workers.fail_together():
                if self.workers.is_chief:
                    self.writer.withdraw(self.step)
            raise self._divergence(self.step, self.position, f"validation loss {loss}")
        metric = self.config.train.best_metric
        value = loss if metric == "loss" else cast(float, score)
        self.validations.append(
            checkpoints.ValidationRecord(self.step, metric, float(value), self.is_validation_on_time)
        )
        self.is_validation_due = False
        with self.workers.fail_together():
            monitor.sync()
            if self.workers.is_chief:
                self.writer.complete(self.step, self._state())

    def _save(self, monitor: Monitor | SilentMonitor) -> None:
        """Starts to save a checkpoint, before validation, which may take long and need more memory than training."""
        with self.workers.fail_together():
            monitor.sync()
            if not self.workers.is_chief:
                return
            self.writer.wait()  # so that memory holds only one copy of the state at a time
            state = self.training.read()
            moments = {f"{part}/{name}": array for part in _MOMENTS for name, array in state[part].items()}
            self.writer.save(
                self.step,
                state["weights"],
                moments,
                self._state(),
                state.get("ema"),
                is_provisional=self.is_validation_due,
            )

    def _state(self) -> dict[str, Any]:
        """Returns the state to resume from, except for the arrays, as JSON values."""
        return {
            "epoch": self.position.epoch,
            "batch": self.position.batch,
            checkpoints.EPOCHS: self.plans.epochs(self.position),
            "seed": self.config.train.seed,
            "interval": self.interval.sums(),
            "decay_end": self.decay_end,
            "is_validation_due": self.is_validation_due,
            "is_validation_on_time": self.is_validation_on_time,
            checkpoints.VALIDATIONS: [dataclasses.asdict(validation) for validation in self.validations],
            "config": self.config.to_dict(),
            "computed_with": computed_with(self.training.model),
        }

    def _restore(self) -> None:
        """Restores the newest intact checkpoint if there is one."""
        checkpoint = self._find_newest()
        if checkpoint is None:
            return
        arrays = {"weights": checkpoint.weights, **{part: {} for part in _MOMENTS}}
        for key, array in checkpoint.optimizer.items():
            part, _, name = key.partition("/")
            arrays[part][name] = array
        if self.config.train.ema_decay:
            arrays["ema"] = checkpoint.ema or checkpoint.weights
        self.training.write(arrays, checkpoint.step)
        self.step = checkpoint.step
        date = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(checkpoint.path.stat().st_mtime))
        self._restore_lines = [f"resumed from step {checkpoint.step:,} (checkpoint of {date})"]
        self.position = Position(checkpoint.state["epoch"], checkpoint.state["batch"])
        self.interval = Interval(*checkpoint.state.get("interval", []))
        self.is_validation_due = checkpoint.state.get("is_validation_due", False)
        self.is_validation_on_time = checkpoint.state.get("is_validation_on_time", True)
        self.validations = [
            checkpoints.ValidationRecord(**each) for each in checkpoint.state.get(checkpoints.VALIDATIONS, [])
        ]
        self._resume_decay(checkpoint.state)
        uses_loss, old_config = self.config.train.best_metric == "loss", checkpoint.state.get("config")
        if old_config and not uses_loss and scores_differ(Config.from_dict(old_config), self.config):
            self.validations = []

    def _resume_decay(self, state: dict[str, Any]) -> None:
        """Resumes a decay of the learning rate that the time limit started, unless `train.decay_steps` has changed."""
        end, old_steps = state.get("decay_end"), state.get("config", {}).get("train", {}).get("decay_steps")
        if end is None or old_steps != self.config.train.decay_steps:
            return
        if self.step < end or self.is_validation_due:
            self.decay_end = self.training.last_step = end

    def _find_newest(self) -> checkpoints.Checkpoint | None:
        """Returns the newest intact checkpoint; waits up to two minutes until all workers see the same one.

        Raises:
            InputError: all checkpoints are damaged, or the workers still see different ones.
        """
        for _ in range(_LOOKS):
            with self.workers.fail_together():
                checkpoint = checkpoints.latest(self.run.checkpoints_path)
            report = f"sees step {checkpoint.step:,}" if checkpoint else "sees none"
            if len(set(self.workers.gather(report.encode()))) == 1:
                break
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        else:
            self.workers.check_same(f"newest checkpoints in {self.run.checkpoints_path}, which all must see", report)
        return checkpoint

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
        checkpoint = None
        with self.workers.fail_together():
            if self.workers.is_chief:  # other workers may not see the newest checkpoint yet
                self.writer.join()
                checkpoint = checkpoints.latest(self.run.checkpoints_path, weights_only=True)
        newest, *_ = self.workers.gather(with_urls(str(checkpoint.path) if checkpoint else "none").encode())
        return InputError(
            f"training diverged at step {step}: {numbers}, epoch {position.epoch}, batch {position.batch}; "
            f"the last good checkpoint is {newest.decode()}. "
            "Lower train.learning_rate_scale, raise train.warmup_steps or set train.clip_norm"
        )


_MOMENTS = ("first_moments", "second_moments")
_LOOKS, _SECONDS_BETWEEN_LOOKS = 24, 5.0  # NFS clients usually cache the contents of a directory for up to a minute


class _Decision(NamedTuple):
    """The decision of all workers after a call of steps.

    Attributes:
        signal: number of a stop signal that any worker received, or 0.
        is_time_over: whether `train.max_minutes` have passed, and no decay of the learning rate is to be completed.
        is_checkpoint_due: whether `train.checkpoint_minutes` have passed since the last checkpoint.
        decay_steps: number of steps until the end, if the learning rate's decay starts now; otherwise 0.
    """

    signal: int
    is_time_over: bool
    is_checkpoint_due: bool
    decay_steps: int


class _Pace:
    """Estimates how many steps the time limit still allows, from the steps of this process so far.

    The time of validations and checkpoints counts. The first call of steps does not, because it includes tracing.

    Args:
        max_minutes: time limit, from now on; 0 means no limit.
    """

    def __init__(self, max_minutes: float) -> None:
        self._end = time.monotonic() + 60 * max_minutes if max_minutes else math.inf
        self._start: float | None = None
        self._steps = 0

    def add(self, steps: int, now: float) -> None:
        """Counts the steps of a call that ended at `now`, in seconds of `time.monotonic`."""
        if self._start is None:
            self._start = now
        else:
            self._steps += steps

    def steps_left(self, now: float) -> float:
        """Returns how many steps fit into the remaining time; infinite without a limit or before the second call."""
        if self._start is None or not self._steps or now <= self._start:
            return math.inf
        return max(self._end - now, 0.0) * self._steps / (now - self._start)
