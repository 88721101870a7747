"""Requests that wait, that nobody waits for any more, and that never become whole."""

import dataclasses
import json
import socket
import threading

import httpx
import pytest

from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.ordering import Pace
from t2t_keras.serving.server import Server
from tests.serving.rest_calls import MODEL, metric, predict
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

RUNS = "t2t_serving_batch_sentences_count"


def queued(client):
    return metric(client, "t2t_serving_queue_sentences")["t2t_serving_queue_sentences"]


def held(server, path, number):
    """So many requests that wait at a gate, a thread each; a list that their answers come to."""
    answers = []

    def ask():
        with httpx.Client(base_url=f"http://{server.rest_address}", timeout=300) as client:
            answers.append(predict(client, {"signature_name": "gate", "inputs": [str(path)] * 8}))

    threads = [threading.Thread(target=ask) for _ in range(number)]
    for thread in threads:
        thread.start()
    return threads, answers


def test_a_full_queue_is_told_at_once_and_what_is_given_up_leaves_it(server, client, tmp_path, monkeypatch):
    # As if nothing had run: by how long the gates of other tests were shut, calls would be refused before it is full.
    monkeypatch.setattr(server.core._batcher, "pace", Pace(server.core.options.max_batch_bytes))
    gate = tmp_path / "open"
    # Two batches run, one in each stream; the others, of 8 sentences each, fill the queue of 20,000 bytes.
    fit = 20_000 // (8 * (32 + len(str(gate))))
    threads, answers = held(server, gate, 2 + fit)
    wait_until(lambda: queued(client) == 8 * fit)
    assert 0 < 20_000 - metric(client, "t2t_serving_queue_bytes")["t2t_serving_queue_bytes"] < 3000
    full = predict(client, {"instances": ["a" * 300] * 10})
    assert full.status_code == 503 and full.headers["retry-after"] == "1"
    assert "max_queue_bytes=20000" in full.json()["error"]
    assert client.get(MODEL).status_code == 200
    gate.write_text("")
    for thread in threads:
        thread.join(300)
    assert [answer.status_code for answer in answers] == [200] * (2 + fit)


def test_a_client_that_hangs_up_is_not_worked_for(server, client, tmp_path):
    gate = tmp_path / "open"
    before = metric(client, RUNS)[RUNS]
    threads, answers = held(server, gate, 2)
    wait_until(lambda: metric(client, RUNS)[RUNS] == before + 2)
    body = json.dumps({"instances": ["a"] * 5}).encode()
    with socket.create_connection(server.rest_address.split(":"), timeout=300) as connection:
        head = f"POST {MODEL}:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        connection.sendall(head + body)
        wait_until(lambda: queued(client) == 5)
    wait_until(lambda: queued(client) == 0)
    gate.write_text("")
    for thread in threads:
        thread.join(300)
    assert [answer.status_code for answer in answers] == [200] * 2
    assert metric(client, RUNS)[RUNS] == before + 2
    outcome = 't2t_serving_requests_total{interface="rest",outcome="CANCELLED",signature="serving_default"}'
    assert metric(client, "t2t_serving_requests_total")[outcome] >= 1


def hang_up_in_the_middle(server, client):
    """A request that runs for ever, whose client goes away while it runs."""
    body = json.dumps({"signature_name": "endless", "inputs": ["a"]}).encode()
    before = metric(client, RUNS)[RUNS]
    with socket.create_connection(server.rest_address.split(":"), timeout=300) as connection:
        head = f"POST {MODEL}:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        connection.sendall(head + body)
        wait_until(lambda: metric(client, RUNS)[RUNS] == before + 1)


def test_what_runs_is_stopped_when_its_client_hangs_up(server, client):
    """Requests of clients that were gone kept both streams busy for more than a minute."""
    for _ in range(5):
        hang_up_in_the_middle(server, client)
    assert predict(client, {"instances": ["a"]}).status_code == 200


def test_a_request_that_takes_too_long_is_given_up_and_stopped(server, client, monkeypatch):
    options = dataclasses.replace(server.core.options, request_seconds=0.2)
    monkeypatch.setattr(server.core, "options", options)
    for _ in range(3):
        answer = predict(client, {"signature_name": "endless", "inputs": ["a"]})
        assert answer.status_code == 504 and "request_seconds=0.2" in answer.json()["error"]
    monkeypatch.undo()
    assert predict(client, {"instances": ["a"]}).status_code == 200


def test_a_client_with_many_long_requests_holds_up_no_short_ones(versions_1_and_2, tmp_path):
    """Eight clients that sent 4,096 letters each held up sentences for five seconds."""
    options = ServingOptions(str(versions_1_and_2), name="toy", rest_port=0, grpc_port=0, num_streams=2)
    running = Server(options)
    running.start()
    gate = tmp_path / "open"
    # A pattern of 3,000 letters that the gate's name matches.
    long = {"signature_name": "gate", "inputs": [str(gate.with_name(f"[o{'x' * 3000}]pen"))]}
    answers = []

    def ask():
        with httpx.Client(base_url=f"http://{running.rest_address}", timeout=300) as client:
            answers.append(predict(client, long).status_code)

    try:
        threads = [threading.Thread(target=ask) for _ in range(8)]
        with httpx.Client(base_url=f"http://{running.rest_address}", timeout=300) as client:
            # The first one runs alone before the others come, which would be merged with it.
            threads[0].start()
            wait_until(lambda: metric(client, RUNS)[RUNS] == 1)
            for thread in threads[1:]:
                thread.start()
            wait_until(lambda: queued(client) == 7)
            # They wait at the gate, which is shut, and one stream answers all others.
            assert all(predict(client, {"instances": ["a"]}).status_code == 200 for _ in range(20))
            assert not answers
            gate.write_text("")
        for thread in threads:
            thread.join(300)
        assert answers == [200] * 8
    finally:
        assert running.stop()


def test_a_half_sent_request_keeps_nobody_from_being_served(server, client):
    with socket.create_connection(server.rest_address.split(":"), timeout=300) as connection:
        connection.sendall(
            f"POST {MODEL}:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{".encode()
        )
        assert predict(client, {"instances": ["a"]}).status_code == 200
