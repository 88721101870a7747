"""Streamed translations over real sockets."""

import contextlib
import http.client
import json
import shutil

import httpx
import pytest

from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.server import Server
from tests.serving.rest_calls import MODEL, metric, open_stream, predict, read_events
from tests.waiting import wait_until


def outcomes(client):
    """The number of streaming requests by outcome."""
    events = metric(client, "t2t_serving_requests_total")
    return {key.partition('outcome="')[2].partition('"')[0]: n for key, n in events.items() if '"stream"' in key}


@pytest.fixture
def wait_for_outcome(client):
    """Waits until the server has counted one more request with an outcome."""
    before = outcomes(client)
    return lambda outcome: wait_until(lambda: outcomes(client).get(outcome, 0) == before.get(outcome, 0) + 1)


def test_events_are_partial_texts_and_end_with_the_result_of_predict(client, wait_for_outcome):
    for body in ({"instances": ["hällo!"]}, {"inputs": {"text": ["hällo!"]}}, {"inputs": ["hällo!"]}):
        *before, (name, last) = read_events(client, body)
        assert (name, last) == ("end", predict(client, body).json())
        assert [name for name, _ in before] == ["", ""]
        if "instances" in body:
            assert [data["predictions"][0]["translation"] for _, data in before] == ["!O", "!OLL"]
    ok_before = outcomes(client)["OK"]
    read_events(client, {"instances": ["one"]}, f"{MODEL}/versions/1")
    wait_until(lambda: outcomes(client)["OK"] == ok_before + 1)


def test_events_are_sent_only_for_changed_texts(client):
    with open_stream(client, {"instances": ["endless"]}) as events:
        texts = [next(events)[1]["predictions"][0]["translation"] for _ in range(4)]
    assert texts == ["SS", "SSEL", "SSELDN", "SSELDNE"]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"instances": ["a", "b"]}, 400, "2 texts, but a streaming request takes only one"),
        ({"instances": ["x" * 301]}, 400, "max_sentence_bytes=300"),
        ({"instances": [{"word": "a"}]}, 400, "unknown: 'word'"),
        ({"inputs": "a"}, 400, "must have the shape [any], got []"),
        ({"signature_name": "nbest", "instances": ["a"]}, 400, "only answers of 'serving_default' can be streamed"),
        ({}, 400, "exactly one of 'instances' and 'inputs'"),
    ],
)
def test_invalid_requests_are_rejected_before_the_first_event(client, body, status, words):
    response = client.post(f"{MODEL}:stream", content=json.dumps(body).encode())
    assert (response.status_code, list(response.json())) == (status, ["error"])
    assert words in response.json()["error"]


def test_unknown_model_and_unknown_version(client):
    for where in ("/v1/models/other", f"{MODEL}/versions/7"):
        response = client.post(f"{where}:stream", json={"instances": ["a"]})
        assert response.status_code == 404
        assert "Servable not found" in response.json()["error"]


def test_an_error_during_streaming_is_the_last_event(client, wait_for_outcome):
    *before, (name, last) = read_events(client, {"instances": ["late"]})
    assert len(before) == 1
    assert (name, last) == ("error", {"error": "assertion failed: [no such word]"})
    wait_for_outcome("INVALID_ARGUMENT")


def test_streaming_stops_when_the_client_disconnects(server, client, wait_for_outcome):
    with open_stream(client, {"instances": ["endless"]}) as events:
        next(events)
    wait_for_outcome("CANCELLED")
    wait_until(lambda: not server.core._batcher._running)
    assert server.core._free_streams._value == server.core.options.max_stream_requests


def test_a_running_step_stops_when_the_client_disconnects(server, wait_for_outcome):
    connection = http.client.HTTPConnection(server.rest_address)
    connection.request("POST", f"{MODEL}:stream", json.dumps({"instances": ["stuck"]}))
    wait_until(lambda: server.core._batcher._running)
    connection.close()
    wait_for_outcome("CANCELLED")
    wait_until(lambda: not server.core._batcher._running)
    assert server.core._free_streams._value == server.core.options.max_stream_requests


def streams(client):
    return metric(client, "t2t_serving_streams")["t2t_serving_streams"]


def test_open_streams_are_counted(client):
    wait_until(lambda: streams(client) == 0)
    with open_stream(client, {"instances": ["endless"]}) as one, open_stream(client, {"instances": ["endless"]}) as two:
        assert next(one)[0] == next(two)[0] == ""
        assert streams(client) == 2
    wait_until(lambda: streams(client) == 0)


def test_streams_leave_time_for_other_requests(client):
    with open_stream(client, {"instances": ["endless"]}) as one, open_stream(client, {"instances": ["endless"]}) as two:
        assert next(one)[0] == next(two)[0] == ""
        assert predict(client, {"instances": ["a"]}).json()["predictions"][0]["translation"] == "A"


@contextlib.contextmanager
def serve(export_dir, **options):
    server = Server(ServingOptions(str(export_dir), rest_port=0, grpc_port=0, num_streams=2, **options))
    server.start()
    try:
        with httpx.Client(base_url=f"http://{server.rest_address}", timeout=300) as client:
            yield server, client
    finally:
        server.stop()


@pytest.mark.integration
def test_stream_limit_and_server_shutdown(export_dir):
    with serve(export_dir, max_stream_requests=1) as (server, client):
        with open_stream(client, {"instances": ["endless"]}) as events:
            next(events)
            full = client.post(f"{MODEL}:stream", json={"instances": ["a"]})
            assert (full.status_code, full.headers["retry-after"]) == (503, "1")
            assert "max_stream_requests=1" in full.json()["error"]
        wait_until(lambda: server.core._free_streams._value == 1)
        assert [name for name, _ in read_events(client, {"instances": ["ab"]})] == ["end"]
        with open_stream(client, {"instances": ["endless"]}) as events:
            next(events)
            server.core.abandon()  # as after the grace period
            *_, (name, last) = events
            assert (name, last) == ("error", {"error": "the server is stopping"})
        assert not server.stop(), "some requests were not answered"


def hits_and_misses(client):
    names = [f"t2t_serving_cache_{kind}_total" for kind in ("hits", "misses")]
    return [metric(client, name)[name] for name in names]


@pytest.mark.integration
def test_cached_translations_are_sent_in_one_event(export_dir):
    with serve(export_dir, cache_bytes=10**6, max_stream_requests=1) as (_, client):
        first, again = (read_events(client, {"instances": ["hello"]}) for _ in range(2))
        assert [name for name, _ in first] == ["", "", "end"]
        assert again == first[-1:]
        assert hits_and_misses(client) == [1, 1]
        # Streaming results serve only streaming requests, and results of predict serve both.
        response = predict(client, {"instances": ["hello"]}).json()
        assert hits_and_misses(client) == [1, 2]
        other = predict(client, {"inputs": {"text": ["other"]}}).json()
        with open_stream(client, {"instances": ["endless"]}) as events:
            next(events)
            assert read_events(client, {"inputs": {"text": ["other"]}}) == [("end", other)], "cached"
            assert read_events(client, {"instances": ["hello"]}) == [("end", response)]
        assert hits_and_misses(client) == [3, 4]


@pytest.mark.integration
def test_a_version_stays_loaded_until_its_streams_end(export_dir, versions_1_and_2):
    with serve(export_dir) as (server, client):
        with open_stream(client, {"instances": ["endless"]}) as events:
            next(events)
            shutil.copytree(versions_1_and_2 / "2", export_dir / "2")
            server.core.models.first.poll()
            assert server.core.models.first.served == 2
            assert {s.version: s.state for s in server.core.models.first.statuses()} == {1: "UNLOADING", 2: "AVAILABLE"}
            assert next(events)[0] == ""
        wait_until(lambda: server.core._free_streams._value == server.core.options.max_stream_requests)
        wait_until(lambda: server.core.models.first.statuses()[-1].state == "END")
        assert {s.version: s.state for s in server.core.models.first.statuses()} == {1: "END", 2: "AVAILABLE"}


def test_export_without_streaming_signatures(server, client):
    with server.core.lend("toy", None) as loan:
        signatures = loan.model.signatures
        try:
            loan.model.signatures = {name: s for name, s in signatures.items() if name != "stream_begin"}
            response = client.post(f"{MODEL}:stream", json={"instances": ["a"]})
        finally:
            loan.model.signatures = signatures
    assert response.status_code == 501
    assert response.json()["error"].startswith("version 1 has no signatures 'stream_begin' and 'stream_advance'")
