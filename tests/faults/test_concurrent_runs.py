"""Two processes that train the same run, and clocks that jump."""

import itertools
import os
import re
import signal

import pytest

from t2t_keras.runs import checkpoints
from t2t_keras.runs.run import Run
from tests.faults import drill

pytestmark = pytest.mark.faults


def test_second_process_for_the_same_run(tmp_path, uninterrupted):
    setup, expected = uninterrupted()
    model_dir = tmp_path / "run"
    first = drill.TrainingProcess(setup.command(model_dir))
    first.wait_for_step(1)
    first.send(signal.SIGSTOP)  # so that it does not finish before the second process starts
    status, text = drill.TrainingProcess(setup.command(model_dir)).end()
    first.send(signal.SIGCONT)
    assert first.end()[0] == 0
    assert (status, len(text.splitlines())) == (1, 1), text
    assert text.startswith(f"error: {model_dir} is already being trained by process {first.process.pid} on ")
    drill.assert_same_run(model_dir, expected, setup.max_steps)


def test_two_processes_that_start_simultaneously(tmp_path, uninterrupted):
    """One process trains; the other fails, or waits until training is complete."""
    setup, expected = uninterrupted()
    model_dir = tmp_path / "run"
    ends = [training.end() for training in [drill.TrainingProcess(setup.command(model_dir)) for _ in range(2)]]
    (loser,) = [end for end in ends if not end[1].endswith(f"step {setup.max_steps}: reached train.max_steps")]
    assert re.search("^error: .* is already being trained" if loser[0] else "had reached train.max_steps", loser[1])
    assert len(loser[1].splitlines()) == 1, loser[1]
    drill.assert_same_run(model_dir, expected, setup.max_steps)


# Python imports a module of this name at start-up. Each reading of the clock is wrong by a random number of years.
# The file with the process id contains the first readings.
JUMPING_CLOCK = """
import os, pathlib, random, time
real, chance = time.time, random.Random()  # the global generator is seeded for the initial weights
def time_ns(): return int(1e9 * jumping())
def jumping(): return real() + chance.uniform(-3e8, 3e8)
time.time, time.time_ns = jumping, time_ns
times = [time.time() for _ in range(10)] + [time.time_ns() / 1e9 for _ in range(10)]
(pathlib.Path(__file__).parent / f"times_{os.getpid()}").write_text(" ".join(map(str, times)))
"""


def assert_jumped(folder, training: drill.TrainingProcess) -> None:
    times_seen = [float(time) for time in (folder / f"times_{training.process.pid}").read_text().split()]
    for times in (times_seen[:10], times_seen[10:]):
        jumps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert min(jumps) < -1e6 and max(jumps) > 1e6


def test_jumping_clock(tmp_path, uninterrupted):
    """Neither intervals nor the order of checkpoints depend on the time of day or on the times of files."""
    setup, expected = uninterrupted()
    model_dir = tmp_path / "run"
    (tmp_path / "sitecustomize.py").write_text(JUMPING_CLOCK, encoding="utf-8")
    training = drill.TrainingProcess(setup.command(model_dir), PYTHONPATH=str(tmp_path))
    training.wait_for_step(setup.max_steps // 2)
    training.send(signal.SIGKILL)
    training.end()
    assert_jumped(tmp_path, training)
    folder = Run(model_dir).checkpoints_path
    steps = checkpoints.steps(folder)
    for age, step in enumerate(steps):  # the newest checkpoint gets the oldest time
        for path in (folder / checkpoints.step_name(step), *(folder / checkpoints.step_name(step)).iterdir()):
            os.utime(path, (2e9 - 1e8 * age, 2e9 - 1e8 * age))
    resumed = drill.TrainingProcess(setup.command(model_dir), PYTHONPATH=str(tmp_path))
    resumed.wait_for_step(1)
    assert resumed.step > steps[-1]  # the first printed line is after the checkpoint
    status, text = resumed.end()
    assert status == 0, text
    assert_jumped(tmp_path, resumed)
    assert "instead" not in text
    drill.assert_same_run(model_dir, expected, setup.max_steps)
    assert all(line["seconds"] >= 0 for line in drill.read_metrics(Run(model_dir).metrics_path) if "seconds" in line)
