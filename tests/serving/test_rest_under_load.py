"""Requests that wait, that nobody waits for any more, and that never become whole."""

import dataclasses
import json
import socket
import threading
import time

import httpx
import pytest
from rest_calls import MODEL, metric, predict

pytestmark = pytest.mark.integration


def queued(client):
    return metric(client, "t2t_serving_queue_sentences")["t2t_serving_queue_sentences"]


def wait_until(true, seconds=20):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


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


def test_a_full_queue_is_told_at_once_and_what_is_given_up_leaves_it(server, client, tmp_path):
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
    runs = "t2t_serving_batch_sentences_count"
    before = metric(client, runs)[runs]
    threads, answers = held(server, gate, 2)
    wait_until(lambda: metric(client, runs)[runs] == before + 2)
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
    assert metric(client, runs)[runs] == before + 2
    outcome = 't2t_serving_requests_total{interface="rest",outcome="CANCELLED",signature="serving_default"}'
    assert metric(client, "t2t_serving_requests_total")[outcome] >= 1


def test_a_request_that_takes_too_long_is_given_up(server, client, tmp_path, monkeypatch):
    options = dataclasses.replace(server.core.options, request_seconds=1.0)
    monkeypatch.setattr(server.core, "options", options)
    start = time.monotonic()
    answer = predict(client, {"signature_name": "gate", "inputs": [str(tmp_path / "open")]})
    (tmp_path / "open").write_text("")
    assert answer.status_code == 504 and "request_seconds=1" in answer.json()["error"]
    assert time.monotonic() - start >= 1


def test_a_half_sent_request_keeps_nobody_from_being_served(server, client):
    with socket.create_connection(server.rest_address.split(":"), timeout=300) as connection:
        connection.sendall(
            f"POST {MODEL}:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{".encode()
        )
        assert predict(client, {"instances": ["a"]}).status_code == 200
