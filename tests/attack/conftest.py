"""Fixtures of the attacks: a small exported model, servers of it in separate processes, and a list of measurements."""

import contextlib
import re
import time

import pytest

from benchmarks.serving_process import Served, ask_rest, same
from tests.attack import hostile_clients
from tests.waiting import wait_until

NORMAL = ("serving_default", {"text": ["A man in a blue shirt is standing on a ladder."]})

_MEASURED: list[str] = []


def pytest_addoption(parser):
    parser.addoption("--bodies", type=int, default=5000, help="number of fuzzed request bodies")


def pytest_terminal_summary(terminalreporter):
    if _MEASURED:
        terminalreporter.section("measured")
        for line in _MEASURED:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def measured():
    """Returns a function that records lines, which are printed at the end."""
    return _MEASURED.append


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """The directory of a small model."""
    from tests import programs
    from tests.export import exporting

    folder = tmp_path_factory.mktemp("attacked")
    exporting.make_run(folder)
    export_dir = folder / "saved_models" / "tiny"
    flags = [f"--model_dir={folder / 'run'}", f"--export_dir={export_dir}", "--average_last=2"]
    ((status, _, error),) = programs.run_cases("launch.export", [(flags, b"")])
    assert status == 0, error
    return export_dir


@pytest.fixture(scope="session")
def serve(exported, tmp_path_factory):
    """Returns a context that starts a server with some flags, and checks that it answers as before after the attack."""

    @contextlib.contextmanager
    def started(*flags):
        log_path, start = tmp_path_factory.mktemp("log") / "server.log", time.monotonic()
        with Served(str(exported), str(log_path), *flags) as server:
            before = ask_rest(server.rest, *NORMAL)
            yield server
            assert server.alive, server.log
            wait_until(lambda: _answers(server))
            assert same(ask_rest(server.rest, *NORMAL), before)
            assert server.stop() == 0
            assert "Traceback" not in server.log and not re.search(r"^\S+ \S+ CRITICAL ", server.log, re.MULTILINE)
            # Refusals are logged once a minute for each interface and reason.
            assert len(server.log.splitlines()) < 50 + (time.monotonic() - start) / 60 * 8, server.log

    return started


@pytest.fixture(scope="module")
def server(serve):
    """A server with the usual flags."""
    with serve() as server:
        yield server


def _answers(server):
    with contextlib.suppress(OSError):
        return hostile_clients.get(server.rest, "/v1/models/model")[0] == 200
    return False
