"""Small requests while other clients post texts of the maximum length."""

import http.client
import itertools
import json
import statistics
import threading
import time

import pytest

from tests.attack.hostile_clients import MODEL

pytestmark = pytest.mark.attack

CLIENTS, LETTERS = 8, 4096
ROUNDS, REQUESTS = 4, 100

_NUMBERS = itertools.count()


def post(connection, text):
    """The seconds until the response."""
    started = time.monotonic()
    connection.request("POST", f"{MODEL}:predict", json.dumps({"inputs": {"text": [text]}}))
    response = connection.getresponse()
    response.read()
    assert response.status == 200
    return time.monotonic() - started


def small_requests(server):
    """The times of a client that sends different short sentences one after the other."""
    connection = http.client.HTTPConnection(server.rest, timeout=60)
    try:
        return [post(connection, f"A man has {next(_NUMBERS)} dogs.") for _ in range(REQUESTS)]
    finally:
        connection.close()


class LongTexts:
    """Clients that post long texts, half of them without sentence boundaries, while the context is open."""

    def __init__(self, server):
        self._server = server
        self._stopped = threading.Event()
        self.num_answered = [0] * CLIENTS
        self._threads = [threading.Thread(target=self._client, args=(number,)) for number in range(CLIENTS)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        while not any(self.num_answered):
            time.sleep(0.01)
        return self

    def __exit__(self, *error):
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _client(self, number):
        connection = http.client.HTTPConnection(self._server.rest, timeout=60)
        words = "Two dogs play in the snow. " if number % 2 else "dog and snow "
        while not self._stopped.is_set():
            post(connection, f"{next(_NUMBERS)} {words * LETTERS}"[:LETTERS])
            self.num_answered[number] += 1
        connection.close()


def test_long_texts_do_not_delay_short_texts(server, report_line):
    small_requests(server)  # warm-up
    quiet, under_load, num_answered = [], [], 0
    for _ in range(ROUNDS):
        quiet += small_requests(server)
        with LongTexts(server) as long_texts:
            under_load += small_requests(server)
        num_answered += sum(long_texts.num_answered)
    median, p99 = statistics.median(under_load), statistics.quantiles(under_load, n=100)[98]
    ratio = median / statistics.median(quiet)
    report_line(
        f"short texts: p50 {1000 * statistics.median(quiet):.0f} ms; beside {CLIENTS} clients of {LETTERS:,} letters, "
        f"of which {num_answered} were answered: p50 {1000 * median:.0f} ms, {ratio:.1f} times, p99 {1000 * p99:.0f} ms"
    )
    assert num_answered >= CLIENTS * ROUNDS
    assert ratio <= 3 and p99 <= 1
