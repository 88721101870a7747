"""Engines that take turns: what one says when it dies is told."""

import sys

import pytest

from benchmarks.turns import Worker

pytestmark = pytest.mark.integration


def worker(work: str, log_path) -> Worker:
    program = f"from benchmarks.turns import serve\n{work}\nserve(work, None)"
    return Worker("engine", [sys.executable, "-c", program], str(log_path))


def test_an_engine_that_does_not_start(tmp_path):
    assert worker("raise ValueError('why')", tmp_path / "log").failure == "ValueError: why"


def test_an_engine_that_dies_in_its_turn(tmp_path):
    started = worker("def work():\n    raise ValueError('why')\n", tmp_path / "log")
    with pytest.raises(RuntimeError, match="^engine died: ValueError: why$"):
        started.turn()
