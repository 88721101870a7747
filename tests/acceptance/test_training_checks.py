"""Tests the checks on recorded metrics that each test defines; tests/launch/test_prove.py runs real trainings."""

import contextlib
import dataclasses
import json
import math
import pathlib
import signal
from types import SimpleNamespace

import numpy as np
import pytest

from t2t_keras.acceptance.report import Result, report
from t2t_keras.acceptance.training_checks import TrainingChecks
from t2t_keras.acceptance.trainings import Training, TrainingFailedError
from t2t_keras.runs import checkpoints
from t2t_keras.runs.run import Run

UPDATES = 4


@dataclasses.dataclass
class Process:
    """A process that exits with `status`, or with SIGKILL if `killed` is set."""

    status: int = 0
    killed: bool = False

    def wait(self):
        return -signal.SIGKILL if self.killed else self.status

    def poll(self):
        return self.status


class FakeTrainer:
    """Replaces a `Trainer`: writes the losses and the weight that a test has set for a run's name."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.flags: dict[str, list[str]] = {}
        self.losses: dict[str, list[float]] = {}
        self.norm: dict[str, float] = {}
        self.weight: dict[str, float] = {}
        self.status = 0

    def path(self, name):
        return self.folder / name

    @contextlib.contextmanager
    def started(self, name, preset, flags, settings, environment=None):
        del preset, environment
        self.flags.setdefault(name, flags)
        run, log = Run(self.path(name)), self.folder / f"{name}.log"
        run.path.mkdir(exist_ok=True)
        log.write_text("training 3 parameters on 1 replica on CPU; tracing the first\nerror: out of luck\n")
        norm = self.norm.get(name, 1.0)
        lines = [
            {"kind": "train", "step": step, "loss": None if math.isnan(loss) else loss, "gradient_norm": norm}
            for step, loss in enumerate(self.losses.get(name, [5.0, 4.0, 3.0, 2.0]), 1)
        ]
        run.metrics_path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        is_unlimited = settings["train.max_steps"] > 1000
        step = settings["train.checkpoint_steps"] if is_unlimited else settings["train.max_steps"]
        arrays = {"kernel": np.float32([1.0, self.weight.get(name, 2.0)])}
        checkpoints.save(run.checkpoints_path, step, arrays, {"first_moments/kernel": np.zeros(2, "f4")}, {})
        yield Training(Process(self.status), run, log)


@pytest.fixture
def trainings(tmp_path):
    return FakeTrainer(tmp_path)


@pytest.fixture
def checks(trainings):
    return TrainingChecks(trainings, 0, "tiny", "tiny", UPDATES, 1e-4)


@pytest.mark.parametrize(
    ("losses", "outcome", "message"),
    [
        ([5.0, 4.0, 3.0, 2.0], "passed", "updates 1 to 4 differ in loss by at most 0.0e+00 (tolerance 1e-04)"),
        ([5.0, 4.0002, 3.0, 2.0], "passed", "at most 5.0e-05"),
        ([5.0, 4.0008, 3.0, 2.0], "failed", "at most 2.0e-04"),
        ([5.0, 3.9992, 3.0, 2.0], "failed", "at most 2.0e-04"),
        ([math.nan, 4.0, 3.0, 2.0], "failed", "at most nan"),
        ([5.0, 4.0, 3.0, math.nan], "failed", "at most nan"),
        ([5.0, 4.0, 3.0], "failed", "there is no loss of update 4"),
    ],
)
def test_losses_on_all_devices(checks, trainings, losses, outcome, message):
    trainings.losses["all"] = losses
    result = checks.devices()
    assert (result.check, result.outcome) == ("devices", outcome)
    assert message in result.text


@pytest.mark.parametrize(("norm", "outcome"), [(1.0009, "passed"), (1.0011, "failed"), (0.5, "failed")])
def test_gradient_norms_on_all_devices(checks, trainings, norm, outcome):
    trainings.norm["all"] = norm
    assert checks.devices().outcome == outcome


@pytest.mark.parametrize(
    ("num_gpus", "first", "second"),
    [
        (0, ["--strategy=cpu", "--replicas=1"], ["--strategy=cpu", "--replicas=2"]),
        (1, ["--strategy=mirrored", "--replicas=1"], ["--strategy=cpu", "--replicas=1"]),
        (8, ["--strategy=mirrored", "--replicas=1"], ["--strategy=mirrored"]),
    ],
)
def test_which_devices_are_compared(trainings, num_gpus, first, second):
    TrainingChecks(trainings, num_gpus, "tiny", "tiny", UPDATES, 1e-4).devices()
    assert trainings.flags == {"one": first, "all": second}


@pytest.mark.parametrize("weight", [2.0, np.nextafter(np.float32(2), np.float32(3))])
def test_weights_after_a_kill(checks, trainings, weight):
    trainings.weight["uninterrupted"] = float(weight)
    result = checks.resume()
    assert result.outcome == ("passed" if weight == 2.0 else "failed")
    equal = 2 if weight == 2.0 else 1
    assert "killed after update 4, resumed from 2; at update 8, " + f"{equal} of 2 arrays" in result.text


def test_a_training_that_fails_is_reported(checks, trainings):
    trainings.status = 1
    with pytest.raises(TrainingFailedError, match="launch.train ended with 1: error: out of luck"):
        checks.devices()


def test_jax_that_is_not_installed(checks, monkeypatch):
    monkeypatch.setattr("t2t_keras.acceptance.training_checks.util", SimpleNamespace(find_spec=lambda name: None))
    assert checks.jax().outcome == "not run"


def test_jax_resumes_in_the_middle(checks, trainings, monkeypatch):
    monkeypatch.setattr("t2t_keras.acceptance.training_checks.util", SimpleNamespace(find_spec=lambda name: name))
    trainings.losses["jax"] = [0.0, 0.0, 3.0, 2.0]
    result = checks.jax()
    assert result.outcome == "passed" and "updates 3 to 4" in result.text
    trainings.losses["jax"] = [5.0, 4.0, 3.1, 2.0]
    trainings.path("jax").rename(trainings.path("before"))
    assert checks.jax().outcome == "failed"


def test_a_report_has_a_row_for_each_result():
    results = [Result("devices", "passed", "equal"), Result("peak", "failed", "a | b\n  " + "c" * 500)]
    head, rule, *rows = report(results, ["H200", "H200"]).splitlines()
    assert head.startswith("| check | outcome | figures | machine | versions | date |") and set(rule) <= set("| -")
    assert len(rows) == 2 and all("2 x H200" in row and "tensorflow 2." in row for row in rows)
    assert "a \\| b ccc" in rows[1] and rows[1].count("c") < 450
