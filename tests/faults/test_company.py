"""Two trainings of one run at the same time, and clocks that jump."""

import itertools
import os
import re
import signal

import pytest

from t2t_keras.runs import checkpoints
from t2t_keras.runs.run import Run
from tests.faults import drill

pytestmark = pytest.mark.faults


def test_a_second_training_of_the_same_run(tmp_path, uninterrupted):
    setup, expected = uninterrupted()
    model_dir = tmp_path / "run"
    first = drill.Life(setup.command(model_dir))
    first.wait_for_step(1)
    first.send(signal.SIGSTOP)  # lest it be at its end before the second one has begun
    status, text = drill.Life(setup.command(model_dir)).end()
    first.send(signal.SIGCONT)
    assert first.end()[0] == 0
    assert (status, len(text.splitlines())) == (1, 1), text
    assert text.startswith(f"error: {model_dir} is already being trained by process {first.process.pid} on ")
    drill.assert_same_run(model_dir, expected, setup.max_steps)


def test_two_that_start_at_once(tmp_path, uninterrupted):
    """One of them trains, whichever it is; the other one is refused, or waits so long that nothing is left to do."""
    setup, expected = uninterrupted()
    model_dir = tmp_path / "run"
    ends = [life.end() for life in [drill.Life(setup.command(model_dir)) for _ in range(2)]]
    (loser,) = [end for end in ends if not end[1].endswith(f"step {setup.max_steps}: reached train.max_steps")]
    assert re.search("^error: .* is already being trained" if loser[0] else "had reached train.max_steps", loser[1])
    assert len(loser[1].splitlines()) == 1, loser[1]
    drill.assert_same_run(model_dir, expected, setup.max_steps)


# Python imports a module of this name when it starts. Whoever asks for the time gets one years off, never twice alike.
# The file of the process's number says what the first who asked were told.
JUMPING_CLOCK = """
import os, pathlib, random, time
real, chance = time.time, random.Random()  # of its own: the global one is seeded for the weights to begin with
def time_ns(): return int(1e9 * jumping())
def jumping(): return real() + chance.uniform(-3e8, 3e8)
time.time, time.time_ns = jumping, time_ns
told = [time.time() for _ in range(10)] + [time.time_ns() / 1e9 for _ in range(10)]
(pathlib.Path(__file__).parent / f"told_{os.getpid()}").write_text(" ".join(map(str, told)))
"""


def assert_jumped(folder, life: drill.Life) -> None:
    told = [float(time) for time in (folder / f"told_{life.process.pid}").read_text().split()]
    for times in (told[:10], told[10:]):
        jumps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert min(jumps) < -1e6 and max(jumps) > 1e6


def test_a_clock_that_jumps(tmp_path, uninterrupted):
    """Neither intervals nor which checkpoint is the newest depend on the time of day, nor on that of files."""
    setup, expected = uninterrupted()
    model_dir = tmp_path / "run"
    (tmp_path / "sitecustomize.py").write_text(JUMPING_CLOCK, encoding="utf-8")
    life = drill.Life(setup.command(model_dir), PYTHONPATH=str(tmp_path))
    life.wait_for_step(setup.max_steps // 2)
    life.send(signal.SIGKILL)
    life.end()
    assert_jumped(tmp_path, life)
    folder = Run(model_dir).checkpoints_path
    steps = checkpoints.steps(folder)
    for age, step in enumerate(steps):  # the newest looks oldest, and older than all else
        for path in (folder / checkpoints.step_name(step), *(folder / checkpoints.step_name(step)).iterdir()):
            os.utime(path, (2e9 - 1e8 * age, 2e9 - 1e8 * age))
    again = drill.Life(setup.command(model_dir), PYTHONPATH=str(tmp_path))
    again.wait_for_step(1)
    assert again.step > steps[-1]  # the first line it prints is of what comes after that checkpoint
    status, text = again.end()
    assert status == 0, text
    assert_jumped(tmp_path, again)
    assert "instead" not in text
    drill.assert_same_run(model_dir, expected, setup.max_steps)
    assert all(line["seconds"] >= 0 for line in drill.read_metrics(Run(model_dir).metrics_path) if "seconds" in line)
