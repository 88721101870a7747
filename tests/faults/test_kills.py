"""Trainings killed at random points and started again: nothing tells them from one that was left alone."""

import random

import pytest

from tests.faults import drill

pytestmark = pytest.mark.faults

# Seed, kills and replicas of each run; 50 kills in all.
CHAINS = [(1, 9, 1), (2, 9, 1), (3, 9, 1), (4, 9, 1), (5, 9, 2), (6, 5, 8)]


@pytest.mark.parametrize("seed, kills, replicas", CHAINS)
def test_killed_and_resumed_is_as_if_nothing_had_been(tmp_path, uninterrupted, deaths, seed, kills, replicas):
    setup, expected = uninterrupted(replicas)
    chance = random.Random(seed)
    for place, means, step in drill.plan(seed, kills, setup.max_steps):
        deaths.append(drill.kill(setup, tmp_path / "run", place, means, step, chance))
        print(deaths[-1])
    drill.run_to_end(setup, tmp_path / "run")
    drill.assert_same_run(tmp_path / "run", expected, setup.max_steps)


def test_there_are_fifty():
    assert sum(kills for _, kills, _ in CHAINS) == 50
    plans = [(place, means) for seed, kills, _ in CHAINS for place, means, _ in drill.plan(seed, kills, 400)]
    places, means = zip(*plans, strict=True)
    assert places.count("write") >= 15 and plans.count(("write", "SIGKILL")) >= 5
    assert all(means.count(signals) >= 5 for signals in drill.MEANS)
