"""Checks of training on a user's own devices: equal losses, resuming after a kill, and the share of the peak."""

import dataclasses
import functools
import math
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from importlib import util
from typing import Any

import numpy as np

from t2t_keras.acceptance.report import Result, judged
from t2t_keras.acceptance.trainings import Trainer, Training, TrainingFailedError
from t2t_keras.runs import checkpoints
from t2t_keras.runs.records import Record
from t2t_keras.studies.data_facts import DataFacts
from t2t_keras.studies.plan import measured_rate

_NO_DROPOUT = {"model.dropout_rate": 0.0}
# The mantissas of TF32, in which GPUs multiply by default, are too short for a comparison of two devices.
_EXACT = {"NVIDIA_TF32_OVERRIDE": "0", "JAX_DEFAULT_MATMUL_PRECISION": "highest"}
# Metrics to compare, with their names and factors of the tolerance. Adam hides the scale of the gradients from the
# losses; rounding changes a norm more than a loss.
_COMPARED = (("loss", "loss", 1), ("gradient_norm", "gradient norm", 10))
# Settings of the run that is killed. The run ends by itself if these checks end first.
_UNTIL_KILLED = {"train.max_steps": 1_000_000, "train.max_minutes": 30.0}
_PEAK_UPDATES = 20
_PEAK_TOKENS = {"CPU": 1024, "GPU": 16384}  # per device


@dataclasses.dataclass(frozen=True)
class TrainingChecks:
    """The checks of training.

    Attributes:
        trainer: starts the training runs.
        num_gpus: number of GPUs.
        preset: sizes and recipe of the runs whose results are compared.
        peak_preset: sizes and recipe of the run whose speed is measured.
        updates: number of updates to compare.
        tolerance: largest relative difference between two losses; that of gradient norms is ten times as large.
    """

    trainer: Trainer
    num_gpus: int
    preset: str
    peak_preset: str
    updates: int
    tolerance: float

    def devices(self) -> Result:
        """Compares the losses on one device and on all devices.

        A single GPU is compared with the CPU. Without a GPU, two logical devices of the CPU are used.
        """
        one = self._reference
        other = self._cpu(1) if self.num_gpus == 1 else self._all_devices
        with self.trainer.started("all", self.preset, other, self._compared, _EXACT) as everywhere:
            everywhere.finish()
        return self._judge_metrics("devices", one, everywhere, 0)

    def jax(self) -> Result:
        """Resumes the run on one device from its middle with Keras on JAX, and compares the losses."""
        if util.find_spec("jax") is None:
            return Result("jax", "not run", "JAX is not installed")
        one, halfway = self._reference, self._halfway
        shutil.copytree(one.run.path, self.trainer.path("jax"))
        shutil.rmtree(self.trainer.path("jax") / "checkpoints" / checkpoints.step_name(self.updates))
        flags = ["--replicas=1"] if self.num_gpus else self._cpu(1)
        environment = {**_EXACT, "KERAS_BACKEND": "jax"}
        with self.trainer.started("jax", self.preset, flags, self._compared, environment) as on_jax:
            on_jax.finish()
        return self._judge_metrics("jax", one, on_jax, halfway)

    def resume(self) -> Result:
        """Kills a training run, resumes it, and compares its checkpoint with that of an uninterrupted run."""
        settings = {"train.checkpoint_steps": self._halfway, "train.deterministic": self.num_gpus > 0}
        killed = self._train_until_killed({**settings, **_UNTIL_KILLED})
        saved, last = killed.saved_steps[-1], killed.records[-1]["step"]
        settings["train.max_steps"] = last + self.updates
        ends = []
        for name in ("killed", "uninterrupted"):
            with self.trainer.started(name, self.preset, self._all_devices, settings) as training:
                training.finish()
            path = training.run.checkpoints_path / checkpoints.step_name(settings["train.max_steps"])
            end = checkpoints.load(path)
            ends.append({**{f"weights/{k}": v for k, v in end.weights.items()}, **end.optimizer})
        resumed, expected = ends
        different = [name for name, array in expected.items() if not _is_equal(resumed.get(name), array)]
        text = (
            f"{training.devices}: killed after update {last}, resumed from {saved}; at update "
            f"{settings['train.max_steps']}, {len(expected) - len(different)} of {len(expected)} arrays (weights and "
            "moments) are equal bit for bit to those of an uninterrupted run"
        )
        return judged("resume", not different and resumed.keys() == expected.keys(), text)

    def peak(self) -> Result:
        """Measures the speed of training as a share of the speed of a large matrix product on the same devices."""
        kind, texts = "GPU" if self.num_gpus else "CPU", []
        tokens = _PEAK_TOKENS[kind] * max(self.num_gpus, 1)
        flags = self._all_devices if self.num_gpus else self._cpu(1)
        for dtype in ("float32", "bfloat16") if self.num_gpus else ("float32",):
            settings = {
                "train.tokens_per_batch": tokens,
                "train.max_steps": _PEAK_UPDATES,
                "train.mixed_bfloat16": dtype == "bfloat16",
            }
            with self.trainer.started(f"peak_{dtype}", self.peak_preset, flags, settings) as training:
                training.finish()
            speed = statistics.median(record["tokens_per_second"] for record in training.records[_PEAK_UPDATES // 2 :])
            flops = speed * DataFacts.of(self.trainer.data).training_flops(training.run.config.model)
            _, limit = measured_rate(dtype)
            texts.append(
                f"{dtype}: {flops / limit:.2f} of {limit / 1e9:,.0f} GFLOP/s ({speed:,.0f} target tokens per second)"
            )
        text = f"{self.peak_preset}, {tokens:,} tokens per update, {training.devices}: {'; '.join(texts)}"
        return Result("peak", "measured", text)

    @property
    def _halfway(self) -> int:
        return max(self.updates // 2, 1)

    @property
    def _compared(self) -> dict[str, Any]:
        """The settings of runs whose losses are compared; random draws differ between devices and backends."""
        return {**_NO_DROPOUT, "train.max_steps": self.updates, "train.checkpoint_steps": self._halfway}

    @property
    def _all_devices(self) -> list[str]:
        return ["--strategy=mirrored"] if self.num_gpus else self._cpu(2)

    def _cpu(self, replicas: int) -> list[str]:
        return ["--strategy=cpu", f"--replicas={replicas}"]

    @functools.cached_property
    def _reference(self) -> Training:
        """The run on one device, which two checks need."""
        flags = ["--strategy=mirrored", "--replicas=1"] if self.num_gpus else self._cpu(1)
        with self.trainer.started("one", self.preset, flags, self._compared, _EXACT) as training:
            training.finish()
        return training

    def _train_until_killed(self, settings: Mapping[str, Any]) -> Training:
        """Trains until there are updates after the last checkpoint, then kills the process, so that they are lost."""
        with self.trainer.started("killed", self.preset, self._all_devices, settings) as training:
            while not training.saved_steps or training.records[-1]["step"] == training.saved_steps[-1]:
                if training.process.poll() is not None:
                    training.finish()
                    raise TrainingFailedError("the training run ended before it was killed")
                time.sleep(0.02)
        return training

    def _judge_metrics(self, check: str, expected: Training, actual: Training, after: int) -> Result:
        """Compares the losses and the gradient norms of all updates after the given one."""
        steps, texts, is_passed = range(after + 1, self.updates + 1), [], True
        for metric, name, factor in _COMPARED:
            values = [_values(training.records, metric) for training in (expected, actual)]
            if missing := [step for step in steps if not all(step in each for each in values)]:
                return Result(check, "failed", f"{actual.devices}: there is no {name} of update {missing[0]}")
            differences = [abs(values[1][step] / values[0][step] - 1) for step in steps]
            largest = math.nan if any(map(math.isnan, differences)) else max(differences)  # max may skip a NaN
            is_passed = is_passed and largest <= factor * self.tolerance
            texts.append(f"{name} by at most {largest:.1e} (tolerance {factor * self.tolerance:.0e})")
        backend = ", JAX" if check == "jax" else ""
        text = f"{expected.devices} and {actual.devices}{backend}: updates {steps[0]} to {steps[-1]} differ in "
        return judged(check, is_passed, text + " and ".join(texts))


def _values(records: Sequence[Record], metric: str) -> dict[int, float]:
    """Returns a metric of each update; records have null instead of NaN."""
    return {each["step"]: math.nan if each[metric] is None else each[metric] for each in records}


def _is_equal(array: np.ndarray | None, expected: np.ndarray) -> bool:
    return array is not None and array.dtype == expected.dtype and array.tobytes() == expected.tobytes()
