"""Small requests beside clients that post as long a text as they may."""

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
    """The seconds that an answer took."""
    begun = time.monotonic()
    connection.request("POST", f"{MODEL}:predict", json.dumps({"inputs": {"text": [text]}}))
    response = connection.getresponse()
    response.read()
    assert response.status == 200
    return time.monotonic() - begun


def small_requests(server):
    """Of a client that asks for one short sentence after another, each a new one."""
    connection = http.client.HTTPConnection(server.rest, timeout=60)
    try:
        return [post(connection, f"A man has {next(_NUMBERS)} dogs.") for _ in range(REQUESTS)]
    finally:
        connection.close()


class LongTexts:
    """Clients that post long texts, some without the end of a sentence, from the beginning of a block to its end."""

    def __init__(self, server):
        self._server = server
        self._over = threading.Event()
        self.answered = [0] * CLIENTS
        self._threads = [threading.Thread(target=self._client, args=(number,)) for number in range(CLIENTS)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        while not any(self.answered):
            time.sleep(0.01)
        return self

    def __exit__(self, *error):
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _client(self, number):
        connection = http.client.HTTPConnection(self._server.rest, timeout=60)
        words = "Two dogs play in the snow. " if number % 2 else "dog and snow "
        while not self._over.is_set():
            post(connection, f"{next(_NUMBERS)} {words * LETTERS}"[:LETTERS])
            self.answered[number] += 1
        connection.close()


def test_long_texts_hold_up_no_short_ones(server, measured):
    small_requests(server)  # what a first request costs does not count
    quiet, beside, answered = [], [], 0
    for _ in range(ROUNDS):
        quiet += small_requests(server)
        with LongTexts(server) as long_texts:
            beside += small_requests(server)
        answered += sum(long_texts.answered)
    half, most = statistics.median(beside), statistics.quantiles(beside, n=100)[98]
    ratio = half / statistics.median(quiet)
    measured(
        f"short texts: p50 {1000 * statistics.median(quiet):.0f} ms; beside {CLIENTS} clients of {LETTERS:,} letters, "
        f"of which {answered} were answered: p50 {1000 * half:.0f} ms, {ratio:.1f} times, p99 {1000 * most:.0f} ms"
    )
    assert answered >= CLIENTS * ROUNDS
    assert ratio <= 3 and most <= 1
