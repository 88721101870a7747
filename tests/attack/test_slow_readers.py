"""Clients that request large responses and do not read them: their total memory is bounded."""

import concurrent.futures
import contextlib
import json
import time

import pytest

from tests.attack.hostile_clients import ask, connect, metric, request, status
from tests.waiting import wait_until

pytestmark = pytest.mark.attack

READERS = 6
BUDGET = 16 << 20
# A response of 6.5 MB, which exceeds the buffers of a connection.
LARGE = request("attention", text=["dog. " * 450], target=["Hund"], kind=["encoder"], layer=[0])
UNSENT = "t2t_serving_unsent_bytes"


def test_memory_for_slow_readers_is_bounded(serve, report_line):
    with serve(f"--max_unsent_bytes={BUDGET}") as server:
        first_status, body = ask(server.rest, LARGE)
        assert first_status == 200
        # Warm up: the process keeps the memory for as many parallel computations.
        with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
            for _ in range(3):
                assert {status for status, _ in pool.map(lambda _: ask(server.rest, LARGE), range(READERS))} <= {
                    200,
                    503,
                }
        assert len(json.loads(body)["outputs"]["attention"][0][0]) > 800
        before = server.memory_bytes
        with contextlib.ExitStack() as stack:
            readers = [stack.enter_context(connect(server.rest, buffer=64 << 10)) for _ in range(READERS)]
            for reader in readers:
                reader.sendall(LARGE)
            statuses = [status(reader) for reader in readers]
            max_memory = 0
            for _ in range(50):
                max_memory = max(max_memory, server.memory_bytes)
                assert metric(server, UNSENT) <= BUDGET
                time.sleep(0.05)
            served = statuses.count(200)
            assert served >= 1 and statuses.count(503) == READERS - served >= 1
            assert ask(server.rest, request("serving_default", text=["A man."]))[0] == 200
        wait_until(lambda: metric(server, UNSENT) == 0)
        report_line(
            f"{READERS} slow readers of {len(body) / 2**20:.0f} MiB each: {served} are served, the others refused; "
            f"the server's memory grew by {(max_memory - before) / 2**20:.0f} MiB, {BUDGET >> 20} MiB are allowed"
        )
        assert max_memory - before < 1.5 * BUDGET
        assert ask(server.rest, LARGE)[0] == 200
