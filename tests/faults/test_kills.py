"""Training runs that are killed at random points and resumed equal uninterrupted runs."""

import random

import pytest

from tests.faults import drill

pytestmark = pytest.mark.faults

# Seed, number of kills, and replicas of each run; 50 kills in all.
CHAINS = [(1, 9, 1), (2, 9, 1), (3, 9, 1), (4, 9, 1), (5, 9, 2), (6, 5, 8)]


@pytest.mark.parametrize("seed, kills, replicas", CHAINS)
def test_killed_and_resumed_training_equals_uninterrupted_training(
    tmp_path, uninterrupted, deaths, seed, kills, replicas
):
    setup, expected = uninterrupted(replicas)
    chance = random.Random(seed)
    for place, means, step in drill.plan(seed, kills, setup.max_steps):
        deaths.append(drill.kill(setup, tmp_path / "run", place, means, step, chance))
        print(deaths[-1])
    drill.run_to_end(setup, tmp_path / "run")
    drill.assert_same_run(tmp_path / "run", expected, setup.max_steps)
