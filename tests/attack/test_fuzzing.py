"""Random bodies over both protocols: each gets a response, and none causes an internal error."""

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
# Internal errors in both protocols. Busy (503, UNAVAILABLE) and unimplemented (501) are valid responses.
FAULTS = {500, 502, "INTERNAL", "UNKNOWN", "DEADLINE_EXCEEDED", "DATA_LOSS"}
MAX_LETTERS = 2000  # of an error message, which may quote the request


def check_rest(server, seed):
    """Returns the problem with the response, or "", and its status."""
    content, is_complete = fuzzed_bodies.rest(seed)
    try:
        status, body = ask(server.rest, content, seconds=PATIENCE if is_complete else 1.0)
    except TimeoutError:
        # The server may wait for the rest of an incomplete request.
        return f"no answer within {PATIENCE:.0f} s" if is_complete else "", "none"
    if status in FAULTS or is_complete and not status:
        return f"status {status}: {body[:500]!r}", status
    if is_complete and status != 200:
        error = json.loads(body)
        if list(error) != ["error"] or len(error["error"]) > MAX_LETTERS:
            return f"status {status}: {body[:500]!r} ... of {len(body)} bytes", status
    return "", status


def check_grpc(channel, seed):
    """Returns the problem with the response, or "", and its status code."""
    method, message = fuzzed_bodies.grpc(seed)
    compression = grpc.Compression.Gzip if seed % 16 == 1 else None
    try:
        channel.unary_unary(method)(message, timeout=PATIENCE, compression=compression)
    except grpc.RpcError as error:
        code, details = error.code().name, error.details()
        problems = code in FAULTS or len(details) > MAX_LETTERS
        return f"{code}: {details[:500]} ... of {len(details)}" if problems else "", code
    return "", "OK"


def test_fuzzed_requests_get_a_response(server, report_line, pytestconfig):
    bodies = pytestconfig.getoption("--bodies")
    problems, statuses, lock = {}, collections.Counter(), threading.Lock()
    with grpc.insecure_channel(server.grpc) as channel, concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:

        def send(seed):
            problem, status = check_grpc(channel, seed) if seed % 2 else check_rest(server, seed)
            with lock:
                statuses[status] += 1
                if problem:
                    problems[seed] = problem

        for sent in pool.map(send, range(bodies)):
            assert sent is None
    report_line(f"{bodies:,} fuzzed bodies: {', '.join(f'{n:,} {status}' for status, n in statuses.most_common())}")
    assert not problems, f"{len(problems)} problems by seed: {dict(sorted(problems.items())[:20])}"
    assert statuses[200] > bodies // 50 and statuses["OK"] > bodies // 40
    assert not re.search(r"\b(ERROR|CRITICAL|Traceback)\b", server.log), server.log
