"""Requests that wait, that are cancelled, and that are never complete."""

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


def num_queued(client):
    return metric(client, "t2t_serving_queue_sentences")["t2t_serving_queue_sentences"]


def start_gate_requests(server, path, number):
    """Starts threads that each send a request to a gate; returns the threads and a list for their responses."""
    responses = []

    def send():
        with httpx.Client(base_url=f"http://{server.rest_address}", timeout=300) as client:
            responses.append(predict(client, {"signature_name": "gate", "inputs": [str(path)] * 8}))

    threads = [threading.Thread(target=send) for _ in range(number)]
    for thread in threads:
        thread.start()
    return threads, responses


def test_full_queue_rejects_requests(server, client, tmp_path, monkeypatch):
    # With a new pace: gates of other tests took long, so the forecast would reject calls before the queue is full.
    monkeypatch.setattr(server.core._batcher, "pace", Pace(server.core.options.max_batch_bytes))
    gate = tmp_path / "open"
    # Each stream runs one batch; the other requests, of 8 sentences each, fill the queue of 20,000 bytes.
    num_waiting = 20_000 // (8 * (32 + len(str(gate))))
    threads, responses = start_gate_requests(server, gate, 2 + num_waiting)
    wait_until(lambda: num_queued(client) == 8 * num_waiting)
    assert 0 < 20_000 - metric(client, "t2t_serving_queue_bytes")["t2t_serving_queue_bytes"] < 3000
    full = predict(client, {"instances": ["a" * 300] * 10})
    assert full.status_code == 503 and full.headers["retry-after"] == "1"
    assert "max_queue_bytes=20000" in full.json()["error"]
    assert client.get(MODEL).status_code == 200
    gate.write_text("")
    for thread in threads:
        thread.join(300)
    assert [response.status_code for response in responses] == [200] * (2 + num_waiting)


def test_waiting_requests_of_disconnected_clients_do_not_run(server, client, tmp_path):
    gate = tmp_path / "open"
    before = metric(client, RUNS)[RUNS]
    threads, responses = start_gate_requests(server, gate, 2)
    wait_until(lambda: metric(client, RUNS)[RUNS] == before + 2)
    body = json.dumps({"instances": ["a"] * 5}).encode()
    with socket.create_connection(server.rest_address.split(":"), timeout=300) as connection:
        head = f"POST {MODEL}:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        connection.sendall(head + body)
        wait_until(lambda: num_queued(client) == 5)
    wait_until(lambda: num_queued(client) == 0)
    gate.write_text("")
    for thread in threads:
        thread.join(300)
    assert [response.status_code for response in responses] == [200] * 2
    assert metric(client, RUNS)[RUNS] == before + 2
    outcome = 't2t_serving_requests_total{interface="rest",outcome="CANCELLED",signature="serving_default"}'
    assert metric(client, "t2t_serving_requests_total")[outcome] >= 1


def disconnect_while_running(server, client):
    """Sends an endless request, and disconnects while it runs."""
    body = json.dumps({"signature_name": "endless", "inputs": ["a"]}).encode()
    before = metric(client, RUNS)[RUNS]
    with socket.create_connection(server.rest_address.split(":"), timeout=300) as connection:
        head = f"POST {MODEL}:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        connection.sendall(head + body)
        wait_until(lambda: metric(client, RUNS)[RUNS] == before + 1)


def test_running_requests_of_disconnected_clients_stop(server, client):
    """Requests of disconnected clients occupied both streams for more than a minute."""
    for _ in range(5):
        disconnect_while_running(server, client)
    assert predict(client, {"instances": ["a"]}).status_code == 200


def test_requests_that_exceed_the_time_limit_stop(server, client, monkeypatch):
    options = dataclasses.replace(server.core.options, request_seconds=0.2)
    monkeypatch.setattr(server.core, "options", options)
    for _ in range(3):
        response = predict(client, {"signature_name": "endless", "inputs": ["a"]})
        assert response.status_code == 504 and "request_seconds=0.2" in response.json()["error"]
    monkeypatch.undo()
    assert predict(client, {"instances": ["a"]}).status_code == 200


def test_long_requests_do_not_delay_short_requests(versions_1_and_2, tmp_path):
    """Eight clients that sent 4,096 letters each delayed sentences by five seconds."""
    options = ServingOptions(str(versions_1_and_2), name="toy", rest_port=0, grpc_port=0, num_streams=2)
    busy_server = Server(options)
    busy_server.start()
    gate = tmp_path / "open"
    # A pattern of 3,000 letters, which matches the name of the gate.
    long = {"signature_name": "gate", "inputs": [str(gate.with_name(f"[o{'x' * 3000}]pen"))]}
    responses = []

    def send():
        with httpx.Client(base_url=f"http://{busy_server.rest_address}", timeout=300) as client:
            responses.append(predict(client, long).status_code)

    try:
        threads = [threading.Thread(target=send) for _ in range(8)]
        with httpx.Client(base_url=f"http://{busy_server.rest_address}", timeout=300) as client:
            # The first request starts before the others arrive, so that they are not merged with it.
            threads[0].start()
            wait_until(lambda: metric(client, RUNS)[RUNS] == 1)
            for thread in threads[1:]:
                thread.start()
            wait_until(lambda: num_queued(client) == 7)
            # The long requests wait at the closed gate, and one stream serves all others.
            assert all(predict(client, {"instances": ["a"]}).status_code == 200 for _ in range(20))
            assert not responses
            gate.write_text("")
        for thread in threads:
            thread.join(300)
        assert responses == [200] * 8
    finally:
        assert busy_server.stop()


def test_incomplete_requests_do_not_block_other_requests(server, client):
    with socket.create_connection(server.rest_address.split(":"), timeout=300) as connection:
        connection.sendall(
            f"POST {MODEL}:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{".encode()
        )
        assert predict(client, {"instances": ["a"]}).status_code == 200
