"""Real trainings that are made to die: starting, watching, killing and comparing them."""

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
PATIENCE = 900  # seconds that a busy machine may take for whatever a test waits for
# Lines of the log, checkpoints and validations fall together at some steps and apart at others.
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
    """A training: everything about it but where its run is kept.

    Attributes:
        data_dir: prepared data.
        max_steps: at which it ends.
        replicas: of `--replicas`.
    """

    data_dir: pathlib.Path
    max_steps: int
    replicas: int

    def command(self, model_dir: pathlib.Path, *extra: str) -> list[str]:
        settings = {**SETTINGS, "train.max_steps": self.max_steps}
        flags = [f"--set={name}={value}" for name, value in settings.items()]
        places = [f"--data_dir={self.data_dir}", f"--model_dir={model_dir}", "--preset=tiny", "--strategy=cpu"]
        return [sys.executable, "-m", "launch.train", *places, f"--replicas={self.replicas}", *flags, *extra]


class Life:
    """One process of `launch.train`, from its start to its death.

    Args:
        command: of `Setup.command`.
        before: what to do in the child before the program begins.
        **environment: further variables.
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
    def is_over(self) -> bool:
        return self.process.poll() is not None

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, what, pause: float = 0.01):
        """What the function returns as soon as that is true; fails if the process dies before."""
        deadline = time.monotonic() + PATIENCE
        while not (found := what()):
            if self.is_over or time.monotonic() > deadline:
                self.process.kill()
                raise AssertionError(f"never came to it:\n{self.end()[1]}")
            time.sleep(pause)
        return found

    def wait_for_step(self, step: int) -> None:
        self.wait_for(lambda: self.step >= step)

    def wait_for_text(self, pattern: str) -> None:
        self.wait_for(lambda: re.search(pattern, self.text))

    @property
    def step(self) -> int:
        """The last one that was reported on stderr."""
        found = (re.match(r"step ([\d,]+)/", line) for line in reversed(self.lines[:]))
        return next((int(match[1].replace(",", "")) for match in found if match), 0)

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Exit status and all of stderr, when it is over."""
        status = self.process.wait(timeout=PATIENCE)
        self._reader.join(timeout=60)
        return status, self.text


def _begin_child(before) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # shells have it ignored by what they start in the background
    if before is not None:
        before()


@dataclasses.dataclass(frozen=True)
class Death:
    """How one life ended.

    Attributes:
        place: "start", "step" or "write".
        means: which signals.
        step: the last step reported.
        saved: the step of the newest whole checkpoint afterwards; 0 if there is none.
        half_done: what of which checkpoints was half written or half deleted then.
        status: the exit status.
    """

    place: str
    means: str
    step: int
    saved: int
    half_done: list[str]
    status: int


MEANS = {
    "SIGKILL": (signal.SIGKILL,),
    "SIGTERM": (signal.SIGTERM,),
    "SIGINT": (signal.SIGINT,),
    "SIGINT twice": (signal.SIGINT, signal.SIGINT),
    # As schedulers do it, here with too little time in between.
    "SIGTERM, SIGKILL": (signal.SIGTERM, signal.SIGKILL),
}


def run_to_end(setup: Setup, model_dir: pathlib.Path) -> Life:
    life = Life(setup.command(model_dir))
    status, text = life.end()
    assert status == 0, text
    assert f"step {setup.max_steps:,}: reached train.max_steps" in text
    return life


def kill(setup: Setup, model_dir: pathlib.Path, place: str, means: str, step: int, chance: random.Random) -> Death:
    """Starts the training, ends it violently at the given place, and looks at what is left."""
    before, half_before = newest(model_dir), half_done(model_dir)
    life = Life(setup.command(model_dir))
    if place == "start":  # importing, building, restoring, tracing
        moment = life.started + chance.uniform(0, 1) * START_SECONDS[setup.replicas]
        # Not every life is as slow as the one that was measured.
        life.wait_for(lambda: time.monotonic() >= moment or life.step)
    else:
        life.wait_for_step(step)
        if place == "write":
            freeze_inside_a_write(life, model_dir, chance)
        else:
            time.sleep(chance.uniform(0, 0.3))
    assert not life.is_over, life.text
    for index, number in enumerate(MEANS[means]):
        if index:
            time.sleep(chance.uniform(0, 0.1))
        life.send(number)
        life.send(signal.SIGCONT)  # if frozen, it takes notice now; a SIGKILL has not waited for that
    status, text = life.end()
    half = half_done(model_dir)
    if place == "start" and half == half_before:  # the life before left it
        half = []
    death = Death(place, means, life.step, newest(model_dir), half, status)
    assert status != 0, f"{death}: it ended by itself\n{text}"
    assert death.half_done or (place, means) != ("write", "SIGKILL"), f"{death}: it was not inside a write"
    assert death.saved >= before, f"{death}: checkpoint {before} is lost\n{text}"
    if stopped := re.search(r"^step ([\d,]+): stopped by \w+; run the same command to resume$", text, re.M):
        assert status == 128 + MEANS[means][0], death
        assert death.saved == int(stopped[1].replace(",", "")), f"{death}\n{text}"
        assert not death.half_done, death
    elif means in ("SIGTERM", "SIGINT") and place != "start":
        raise AssertionError(f"{death}: did not stop in good order\n{text}")
    return death


def freeze_inside_a_write(life: Life, model_dir: pathlib.Path, chance: random.Random) -> None:
    """Stops the process at a random moment at which a checkpoint is half written or half deleted."""
    longest = 0.02
    while True:
        life.wait_for(lambda: unfinished(model_dir), pause=0.0002)
        time.sleep(chance.uniform(0, longest))
        life.send(signal.SIGSTOP)
        os.waitid(os.P_PID, life.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if unfinished(model_dir):
            return
        life.send(signal.SIGCONT)
        longest /= 2  # that was too late


# How long a life takes to its first step, by replicas; measured by the uninterrupted training.
START_SECONDS: dict[int, float] = {}


def unfinished(model_dir: pathlib.Path) -> list[str]:
    """Directories of checkpoints that are being written or deleted."""
    with contextlib.suppress(FileNotFoundError):
        return [name for name in os.listdir(Run(model_dir).checkpoints_path) if name.startswith(".tmp_step_")]
    return []


def half_done(model_dir: pathlib.Path) -> list[str]:
    """Of each unfinished directory, what is in it."""
    folder = Run(model_dir).checkpoints_path
    return [f"{name}: {', '.join(sorted(os.listdir(folder / name)))}" for name in unfinished(model_dir)]


def newest(model_dir: pathlib.Path) -> int:
    """The step of the newest checkpoint, which must be whole; 0 if there is none."""
    folder = Run(model_dir).checkpoints_path
    steps = checkpoints.steps(folder)
    return checkpoints.load(folder / checkpoints.step_name(steps[-1])).step if steps else 0


def assert_same_run(model_dir: pathlib.Path, expected_dir: pathlib.Path, step: int) -> None:
    """Nothing tells the two runs apart but times, the checkpoints that signals saved, and files of events."""
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
    """Weights, moments, averages bit for bit; position, best and all else that the trainer keeps."""
    actual, expected = tiny_training.state(model_dir, step), tiny_training.state(expected_dir, step)
    assert actual.keys() == expected.keys()
    assert any(name.startswith("ema/") for name in expected)
    for name, array in expected.items():
        assert actual[name].dtype == array.dtype
        assert actual[name].tobytes() == array.tobytes(), f"{name} differs by {np.abs(actual[name] - array).max()}"
    states = [trainer_state(path, step) for path in (model_dir, expected_dir)]
    assert states[0] == states[1]


def trainer_state(model_dir: pathlib.Path, step: int) -> dict:
    """What a checkpoint says of the trainer, without the seconds that steps took."""
    path = Run(model_dir).checkpoints_path / checkpoints.step_name(step) / "state.json"
    state = json.loads(path.read_text(encoding="utf-8"))["state"]
    return {**state, "interval": state["interval"][:2]}


def records(model_dir: pathlib.Path) -> list[dict]:
    """All lines of metrics.jsonl in their order, without times."""
    lines = read_metrics(Run(model_dir).metrics_path)
    assert len(lines) == len(Run(model_dir).metrics_path.read_text(encoding="utf-8").splitlines())
    return [{k: v for k, v in line.items() if k not in tiny_training.TIMES} for line in lines]


def scalar_steps(model_dir: pathlib.Path) -> dict[str, list[int]]:
    """The steps of which TensorBoard shows the losses."""
    events = EventAccumulator(str(Run(model_dir).tensorboard_path), size_guidance={"tensors": 0})
    events.Reload()
    return {name: [event.step for event in events.Tensors(name)] for name in ("train/loss", "valid/loss")}


def names(model_dir: pathlib.Path) -> set[str]:
    """Everything in the run's directory but its checkpoints; files of events count once."""
    paths = [path.relative_to(model_dir) for path in model_dir.rglob("*") if path.is_file()]
    outside = [path for path in paths if path.parts[0] != "checkpoints"]
    return {"events" if path.name.startswith("events.out.tfevents.") else str(path) for path in outside}


def plan(seed: int, count: int, max_steps: int) -> list[tuple[str, str, int]]:
    """Where and how to kill one run so many times: place, means and step, in rising order."""
    chance = random.Random(seed)
    width = 0.75 * max_steps / count  # far enough from the end for a write to come
    return [
        (
            chance.choices(["step", "write", "start"], [5, 4, 2])[0],
            chance.choices(list(MEANS), [5, 3, 3, 1, 2])[0],
            max(1, int(width * (index + chance.random()))),
        )
        for index in range(count)
    ]


def report(deaths: list[Death]) -> list[str]:
    """How many lives ended how, for people to read."""
    half = [what for death in deaths for what in death.half_done]
    deleted = sum(".deleted: " in what for what in half)
    lines = [f"{len(deaths)} kills left {len(half) - deleted} checkpoints half written and {deleted} half deleted"]
    lines += [f"  {what}" for what in sorted(half)]
    for key in (lambda death: death.place, lambda death: death.means, lambda death: f"{death.place}, {death.means}"):
        groups = itertools.groupby(sorted(deaths, key=key), key)
        lines.append("  " + ", ".join(f"{name}: {len(list(group))}" for name, group in groups))
    return lines
