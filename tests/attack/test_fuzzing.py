"""Bodies that seeds draw, over both protocols: each gets an answer, none an error of the server."""

import collections
import concurrent.futures
import json
import re
import threading

import grpc
import pytest

from tests.attack import fuzzed_bodies
from tests.attack.hostile_clients import PATIENCE, ask

pytestmark = pytest.mark.attack

CLIENTS = 8
# The server's own fault, by both protocols. It is too busy (503, UNAVAILABLE) or has no such method (501) by right.
FAULTS = {500, 502, "INTERNAL", "UNKNOWN", "DEADLINE_EXCEEDED", "DATA_LOSS"}
MOST_LETTERS = 2000  # of a message, whatever it quotes


def over_rest(server, seed):
    """What is wrong with the answer, or "", and its status."""
    content, whole = fuzzed_bodies.rest(seed)
    try:
        status, answer = ask(server.rest, content, seconds=PATIENCE if whole else 1.0)
    except TimeoutError:
        # The server may wait for the rest of a request that is not whole.
        return f"no answer within {PATIENCE:.0f} s" if whole else "", "none"
    if status in FAULTS or whole and not status:
        return f"status {status}: {answer[:500]!r}", status
    if whole and status != 200:
        error = json.loads(answer)
        if list(error) != ["error"] or len(error["error"]) > MOST_LETTERS:
            return f"status {status}: {answer[:500]!r} ... of {len(answer)} bytes", status
    return "", status


def over_grpc(channel, seed):
    """As `over_rest`."""
    method, message = fuzzed_bodies.grpc(seed)
    compression = grpc.Compression.Gzip if seed % 16 == 1 else None
    try:
        channel.unary_unary(method)(message, timeout=PATIENCE, compression=compression)
    except grpc.RpcError as error:
        code, details = error.code().name, error.details()
        wrong = code in FAULTS or len(details) > MOST_LETTERS
        return f"{code}: {details[:500]} ... of {len(details)}" if wrong else "", code
    return "", "OK"


def test_what_seeds_draw_gets_an_answer(server, measured, pytestconfig):
    bodies = pytestconfig.getoption("--bodies")
    wrong, statuses, lock = {}, collections.Counter(), threading.Lock()
    with grpc.insecure_channel(server.grpc) as channel, concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:

        def send(seed):
            found, status = over_grpc(channel, seed) if seed % 2 else over_rest(server, seed)
            with lock:
                statuses[status] += 1
                if found:
                    wrong[seed] = found

        for sent in pool.map(send, range(bodies)):
            assert sent is None
    measured(f"{bodies:,} fuzzed bodies: {', '.join(f'{n:,} {status}' for status, n in statuses.most_common())}")
    assert not wrong, f"{len(wrong)} answers, by seeds: {dict(sorted(wrong.items())[:20])}"
    assert statuses[200] > bodies // 50 and statuses["OK"] > bodies // 40
    assert not re.search(r"\b(ERROR|CRITICAL|Traceback)\b", server.log), server.log
