"""Fixtures of the drill: the data, the uninterrupted trainings, and a summary at the end."""

import pytest

from tests.faults import drill

DEATHS: list[drill.Death] = []


def pytest_terminal_summary(terminalreporter):
    if DEATHS:
        terminalreporter.section("the drill")
        for line in drill.report(DEATHS):
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def deaths():
    """The list in which each kill is recorded."""
    return DEATHS


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    return drill.tiny_training.make_data(tmp_path_factory.mktemp("data")).directory


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory, data_dir):
    """Returns a function that returns the training for a number of replicas and its uninterrupted run, made once."""
    made = {}

    def get(replicas: int = 1):
        if replicas not in made:
            setup = drill.Setup(data_dir, {1: 400, 2: 200, 8: 100}[replicas], replicas)
            model_dir = tmp_path_factory.mktemp(f"uninterrupted_{replicas}") / "run"
            life = drill.Life(setup.command(model_dir))
            life.wait_for_step(1)
            drill.START_SECONDS[replicas] = drill.time.monotonic() - life.started
            status, text = life.end()
            assert status == 0, text
            made[replicas] = setup, model_dir
        return made[replicas]

    return get
