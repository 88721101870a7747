"""Starts, observes and kills real training processes, and compares their runs."""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from t2t_keras.runs import checkpoints
from t2t_keras.runs.records import read_metrics
from t2t_keras.runs.run import Run
from tests.training import tiny_training

ROOT = pathlib.Path(__file__).parents[2]
PATIENCE = 900  # seconds that any wait of a test may take on a busy machine
# Log lines, checkpoints and validations coincide at some steps and not at others.
SETTINGS: dict[str, Any] = {
    **{f"model.{name}": value for name, value in tiny_training.MODEL.items()},
    **{f"train.{name}": value for name, value in tiny_training.TRAIN.items()},
    "model.dropout_rate": 0.3,
    "model.use_attention_bias": False,
    "train.log_steps": 5,
    "train.checkpoint_steps": 12,
    "train.validation_steps": 36,
    "train.keep_checkpoints": 3,
    "train.steps_per_call": 4,
    "train.ema_decay": 0.9,
    "train.max_minutes": 1000.0,
}


@dataclasses.dataclass(frozen=True)
class Setup:
    """A training run without its directory.

    Attributes:
        data_dir: prepared data.
        max_steps: the last step.
        replicas: the value of `--replicas`.
    """

    data_dir: pathlib.Path
    max_steps: int
    replicas: int

    def command(self, model_dir: pathlib.Path, *extra: str) -> list[str]:
        settings = {**SETTINGS, "train.max_steps": self.max_steps}
        flags = [f"--set={name}={value}" for name, value in settings.items()]
        places = [f"--data_dir={self.data_dir}", f"--model_dir={model_dir}", "--preset=tiny", "--strategy=cpu"]
        return [sys.executable, "-m", "launch.train", *places, f"--replicas={self.replicas}", *flags, *extra]


class TrainingProcess:
    """A process of `launch.train`, from start to end.

    Args:
        command: from `Setup.command`.
        before: a function that the child calls before the program starts.
        **environment: additional environment variables.
    """

    def __init__(self, command: list[str], before=None, **environment: str) -> None:
        path = os.pathsep.join(filter(None, [environment.pop("PYTHONPATH", ""), str(ROOT)]))
        self.model_dir = pathlib.Path(next(flag for flag in command if "--model_dir=" in flag).partition("=")[2])
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: _begin_child(before),
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment, "PYTHONPATH": path},
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, condition, pause: float = 0.01):
        """Waits until a function returns a true value, and returns the value; fails if the process ends before."""
        deadline = time.monotonic() + PATIENCE
        while not (result := condition()):
            if self.has_ended or time.monotonic() > deadline:
                self.process.kill()
                raise AssertionError(f"the condition was never true:\n{self.end()[1]}")
            time.sleep(pause)
        return result

    def wait_for_step(self, step: int) -> None:
        self.wait_for(lambda: self.step >= step)

    def wait_for_text(self, pattern: str) -> None:
        self.wait_for(lambda: re.search(pattern, self.text))

    @property
    def step(self) -> int:
        """The last step that was reported on stderr."""
        matches = (re.match(r"step ([\d,]+)/", line) for line in reversed(self.lines[:]))
        return next((int(match[1].replace(",", "")) for match in matches if match), 0)

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Waits for the end; returns the exit status and stderr."""
        status = self.process.wait(timeout=PATIENCE)
        self._reader.join(timeout=60)
        return status, self.text


def _begin_child(before) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # background jobs of a shell ignore SIGINT
    if before is not None:
        before()


@dataclasses.dataclass(frozen=True)
class Death:
    """The end of a process.

    Attributes:
        place: "start", "step" or "write".
        means: the name of the signals.
        step: the last reported step.
        saved: the step of the newest complete checkpoint afterwards, or 0.
        partial_checkpoints: the contents of partially written or deleted checkpoints.
        status: the exit status.
    """

    place: str
    means: str
    step: int
    saved: int
    partial_checkpoints: list[str]
    status: int


MEANS = {
    "SIGKILL": (signal.SIGKILL,),
    "SIGTERM": (signal.SIGTERM,),
    "SIGINT": (signal.SIGINT,),
    "SIGINT twice": (signal.SIGINT, signal.SIGINT),
    # Like schedulers, but with too little time between the signals.
    "SIGTERM, SIGKILL": (signal.SIGTERM, signal.SIGKILL),
}


def run_to_end(setup: Setup, model_dir: pathlib.Path) -> TrainingProcess:
    training = TrainingProcess(setup.command(model_dir))
    status, text = training.end()
    assert status == 0, text
    assert f"step {setup.max_steps:,}: reached train.max_steps" in text
    return training


def kill(setup: Setup, model_dir: pathlib.Path, place: str, means: str, step: int, chance: random.Random) -> Death:
    """Starts the training run, kills it at the given place, and examines its files."""
    before, half_before = newest(model_dir), partial_checkpoints(model_dir)
    training = TrainingProcess(setup.command(model_dir))
    if place == "start":  # importing, building, restoring, tracing
        moment = training.started + chance.uniform(0, 1) * START_SECONDS[setup.replicas]
        # This process may be faster than the one that was measured.
        training.wait_for(lambda: time.monotonic() >= moment or training.step)
    else:
        training.wait_for_step(step)
        if place == "write":
            freeze_during_write(training, model_dir, chance)
        else:
            time.sleep(chance.uniform(0, 0.3))
    assert not training.has_ended, training.text
    for index, number in enumerate(MEANS[means]):
        if index:
            time.sleep(chance.uniform(0, 0.1))
        training.send(number)
        training.send(signal.SIGCONT)  # a frozen process receives the other signals now; SIGKILL works immediately
    status, text = training.end()
    half = partial_checkpoints(model_dir)
    if place == "start" and half == half_before:  # left by the previous process
        half = []
    death = Death(place, means, training.step, newest(model_dir), half, status)
    assert status != 0, f"{death}: it exited before the signal\n{text}"
    assert death.partial_checkpoints or (place, means) != ("write", "SIGKILL"), f"{death}: killed outside a write"
    assert death.saved >= before, f"{death}: checkpoint {before} is lost\n{text}"
    if stopped := re.search(r"^step ([\d,]+): stopped by \w+; run the same command to resume$", text, re.M):
        assert status == 128 + MEANS[means][0], death
        assert death.saved == int(stopped[1].replace(",", "")), f"{death}\n{text}"
        assert not death.partial_checkpoints, death
    elif means in ("SIGTERM", "SIGINT") and place != "start":
        raise AssertionError(f"{death}: it did not save and stop\n{text}")
    return death


def freeze_during_write(training: TrainingProcess, model_dir: pathlib.Path, chance: random.Random) -> None:
    """Stops the process at a random moment when a checkpoint is partially written or deleted."""
    longest = 0.02
    while True:
        training.wait_for(lambda: unfinished_checkpoints(model_dir), pause=0.0002)
        time.sleep(chance.uniform(0, longest))
        training.send(signal.SIGSTOP)
        os.waitid(os.P_PID, training.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if unfinished_checkpoints(model_dir):
            return
        training.send(signal.SIGCONT)
        longest /= 2  # the write was already finished


# Seconds from the start to the first step by number of replicas, measured with the uninterrupted run.
START_SECONDS: dict[int, float] = {}


def unfinished_checkpoints(model_dir: pathlib.Path) -> list[str]:
    """The directories of checkpoints that are being written or deleted."""
    with contextlib.suppress(FileNotFoundError):
        return [name for name in os.listdir(Run(model_dir).checkpoints_path) if name.startswith(".tmp_step_")]
    return []


def partial_checkpoints(model_dir: pathlib.Path) -> list[str]:
    """The contents of each unfinished directory."""
    folder = Run(model_dir).checkpoints_path
    return [f"{name}: {', '.join(sorted(os.listdir(folder / name)))}" for name in unfinished_checkpoints(model_dir)]


def newest(model_dir: pathlib.Path) -> int:
    """The step of the newest checkpoint, which must be complete, or 0."""
    folder = Run(model_dir).checkpoints_path
    steps = checkpoints.steps(folder)
    return checkpoints.load(folder / checkpoints.step_name(steps[-1])).step if steps else 0


def assert_same_run(model_dir: pathlib.Path, expected_dir: pathlib.Path, step: int) -> None:
    """The runs differ only in times, checkpoints that signals saved, and numbers of event files."""
    assert_same_checkpoint(model_dir, expected_dir, step)
    assert records(model_dir) == records(expected_dir)
    assert checkpoints.best(Run(model_dir).checkpoints_path) == checkpoints.best(Run(expected_dir).checkpoints_path)
    assert scalar_steps(model_dir) == scalar_steps(expected_dir)
    assert names(model_dir) == names(expected_dir)
    folder = Run(model_dir).checkpoints_path
    best = tiny_training.best_step(model_dir)
    assert {entry.name for entry in folder.iterdir()} == {
        *map(checkpoints.step_name, {*checkpoints.steps(folder)[-SETTINGS["train.keep_checkpoints"] :], best}),
    }


def assert_same_checkpoint(model_dir: pathlib.Path, expected_dir: pathlib.Path, step: int) -> None:
    """Weights, moments and averages are bit-identical, and the state of the trainer is equal."""
    actual, expected = tiny_training.state(model_dir, step), tiny_training.state(expected_dir, step)
    assert actual.keys() == expected.keys()
    assert any(name.startswith("ema/") for name in expected)
    for name, array in expected.items():
        assert actual[name].dtype == array.dtype
        assert actual[name].tobytes() == array.tobytes(), f"{name} differs by {np.abs(actual[name] - array).max()}"
    states = [trainer_state(path, step) for path in (model_dir, expected_dir)]
    assert states[0] == states[1]


def trainer_state(model_dir: pathlib.Path, step: int) -> dict:
    """The state of the trainer in a checkpoint, without the durations of steps."""
    path = Run(model_dir).checkpoints_path / checkpoints.step_name(step) / "state.json"
    state = json.loads(path.read_text(encoding="utf-8"))["state"]
    return {**state, "interval": state["interval"][:2]}


def records(model_dir: pathlib.Path) -> list[dict]:
    """All lines of metrics.jsonl in order, without times."""
    lines = read_metrics(Run(model_dir).metrics_path)
    assert len(lines) == len(Run(model_dir).metrics_path.read_text(encoding="utf-8").splitlines())
    return [{k: v for k, v in line.items() if k not in tiny_training.TIMES} for line in lines]


def scalar_steps(model_dir: pathlib.Path) -> dict[str, list[int]]:
    """The steps for which TensorBoard has losses."""
    events = EventAccumulator(str(Run(model_dir).tensorboard_path), size_guidance={"tensors": 0})
    events.Reload()
    return {name: [event.step for event in events.Tensors(name)] for name in ("train/loss", "valid/loss")}


def names(model_dir: pathlib.Path) -> set[str]:
    """The files of a run except its checkpoints; event files count once."""
    paths = [path.relative_to(model_dir) for path in model_dir.rglob("*") if path.is_file()]
    outside = [path for path in paths if path.parts[0] != "checkpoints"]
    return {"events" if path.name.startswith("events.out.tfevents.") else str(path) for path in outside}


def plan(seed: int, count: int, max_steps: int) -> list[tuple[str, str, int]]:
    """How to kill one run several times: places, signals and steps, in order of steps."""
    chance = random.Random(seed)
    width = 0.75 * max_steps / count  # ends early enough for another write
    return [
        (
            chance.choices(["step", "write", "start"], [5, 4, 2])[0],
            chance.choices(list(MEANS), [5, 3, 3, 1, 2])[0],
            max(1, int(width * (index + chance.random()))),
        )
        for index in range(count)
    ]


def report(deaths: list[Death]) -> list[str]:
    """A readable summary of the kills."""
    half = [contents for death in deaths for contents in death.partial_checkpoints]
    deleted = sum(".deleted: " in contents for contents in half)
    lines = [f"{len(deaths)} kills left {len(half) - deleted} checkpoints half written and {deleted} half deleted"]
    lines += [f"  {contents}" for contents in sorted(half)]
    for key in (lambda death: death.place, lambda death: death.means, lambda death: f"{death.place}, {death.means}"):
        groups = itertools.groupby(sorted(deaths, key=key), key)
        lines.append("  " + ", ".join(f"{name}: {len(list(group))}" for name, group in groups))
    return lines
