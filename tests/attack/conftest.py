"""Fixtures for attacks: a small export, servers in separate processes, and a report of measurements."""

import contextlib
import re
import time

import pytest

from benchmarks.serving_process import Served, ask_rest, same
from tests.attack import hostile_clients
from tests.waiting import wait_until

NORMAL = ("serving_default", {"text": ["A man in a blue shirt is standing on a ladder."]})

_REPORT: list[str] = []


def pytest_addoption(parser):
    parser.addoption("--bodies", type=int, default=5000, help="number of fuzzed request bodies")


def pytest_terminal_summary(terminalreporter):
    if _REPORT:
        terminalreporter.section("measured")
        for line in _REPORT:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def report_line():
    """Adds a line to the report, which is printed at the end."""
    return _REPORT.append


@pytest.fixture(scope="session")
def attacked_export(tmp_path_factory):
    """The directory of a small export."""
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
def serve(attacked_export, tmp_path_factory):
    """Starts a server for a block, and afterwards checks that it still works and that its log is short."""

    @contextlib.contextmanager
    def start_server(*flags):
        log_path, start = tmp_path_factory.mktemp("log") / "server.log", time.monotonic()
        with Served(str(attacked_export), str(log_path), *flags) as server:
            before = ask_rest(server.rest, *NORMAL)
            yield server
            assert server.alive, server.log
            wait_until(lambda: _is_ready(server))
            assert same(ask_rest(server.rest, *NORMAL), before)
            assert server.stop() == 0
            assert "Traceback" not in server.log and not re.search(r"^\S+ \S+ CRITICAL ", server.log, re.MULTILINE)
            # Rejected requests are logged at most once a minute per interface and reason.
            assert len(server.log.splitlines()) < 50 + (time.monotonic() - start) / 60 * 8, server.log

    return start_server


@pytest.fixture(scope="module")
def server(serve):
    """A server with the default flags."""
    with serve() as server:
        yield server


def _is_ready(server):
    with contextlib.suppress(OSError):
        return hostile_clients.get(server.rest, "/v1/models/model")[0] == 200
    return False
