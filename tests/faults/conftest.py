"""Fixtures of the drill: data, uninterrupted runs, and a summary at the end."""

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
    """The list that records each kill."""
    return DEATHS


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    return drill.tiny_training.make_data(tmp_path_factory.mktemp("data")).directory


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory, data_dir):
    """Returns a function: replicas -> setup and model_dir of an uninterrupted run, which is trained once."""
    runs = {}

    def get(replicas: int = 1):
        if replicas not in runs:
            setup = drill.Setup(data_dir, {1: 400, 2: 200, 8: 100}[replicas], replicas)
            model_dir = tmp_path_factory.mktemp(f"uninterrupted_{replicas}") / "run"
            training = drill.TrainingProcess(setup.command(model_dir))
            training.wait_for_step(1)
            drill.START_SECONDS[replicas] = drill.time.monotonic() - training.started
            status, text = training.end()
            assert status == 0, text
            runs[replicas] = setup, model_dir
        return runs[replicas]

    return get
