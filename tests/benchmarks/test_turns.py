"""Engines in separate processes, here small scripts that report scripted processor times."""

import os
import sys
import time

import pytest

from benchmarks.turns import Worker, take_turns

SCRIPT = """
import json, sys
print(json.dumps({"ready": 1}), flush=True)
for number, _ in zip(range(LIFE), sys.stdin):
    print(json.dumps({"done": {"cpu_seconds": SECONDS, "seconds": number}}), flush=True)
sys.exit("out of memory")
"""


@pytest.fixture
def worker(tmp_path):
    """Returns a function that starts an engine, given its processor time in each turn and its number of turns."""

    def started(seconds, life=9):
        script = SCRIPT.replace("SECONDS", str(seconds)).replace("LIFE", str(life))
        return Worker("one", [sys.executable, "-c", script], str(tmp_path / "log"))

    return started


def test_noisy_turns_count_only_without_quiet_ones(worker, monkeypatch):
    used = iter(range(100))
    monkeypatch.setattr("benchmarks.turns.busy_seconds", lambda: next(used))  # a second for each turn
    engine = worker(0.0)
    engine.turn(tries=2)
    assert (engine.quiet_turns, len(engine.noisy_turns)) == ([], 2) and engine.turns == engine.noisy_turns
    engine.close()
    engine = worker(1.0)
    take_turns([engine], rounds=1)
    assert [turn["seconds"] for turn in engine.turns] == [1]  # the warm-up round does not count
    engine.close()


def test_an_engine_that_died_since_its_last_turn_is_named(worker):
    engine = worker(0.0, life=1)
    engine.turn(tries=1)
    deadline = time.monotonic() + 60
    while os.waitid(os.P_PID, engine._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(RuntimeError, match="one died: out of memory"):
        engine.turn(tries=1)


def test_without_engines_there_is_a_message():
    with pytest.raises(SystemExit, match="none of the engines can run"):
        take_turns([], rounds=1)
