"""Streamed translations, over real sockets."""

import contextlib
import http.client
import json
import shutil

import httpx
import pytest

from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.server import Server
from tests.serving.rest_calls import MODEL, all_events, metric, predict, streamed
from tests.waiting import wait_until


def outcomes(client):
    """Requests by outcome, as the server counts them."""
    found = metric(client, "t2t_serving_requests_total")
    return {key.partition('outcome="')[2].partition('"')[0]: n for key, n in found.items() if '"stream"' in key}


@pytest.fixture
def counted(client):
    """Waits until an outcome was counted once more than before."""
    before = outcomes(client)
    return lambda outcome: wait_until(lambda: outcomes(client).get(outcome, 0) == before.get(outcome, 0) + 1)


def test_each_event_is_the_text_so_far_and_the_last_one_what_predict_gives(client, counted):
    for body in ({"instances": ["hällo!"]}, {"inputs": {"text": ["hällo!"]}}, {"inputs": ["hällo!"]}):
        *before, (name, last) = all_events(client, body)
        assert (name, last) == ("end", predict(client, body).json())
        assert [name for name, _ in before] == ["", ""]
        if "instances" in body:
            assert [data["predictions"][0]["translation"] for _, data in before] == ["!O", "!OLL"]
    counted_now = outcomes(client)["OK"]
    all_events(client, {"instances": ["one"]}, f"{MODEL}/versions/1")
    wait_until(lambda: outcomes(client)["OK"] == counted_now + 1)


def test_an_event_is_sent_only_when_the_text_has_changed(client):
    with streamed(client, {"instances": ["endless"]}) as found:
        texts = [next(found)[1]["predictions"][0]["translation"] for _ in range(4)]
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
def test_what_is_wrong_is_refused_before_anything_is_sent(client, body, status, words):
    answer = client.post(f"{MODEL}:stream", content=json.dumps(body).encode())
    assert (answer.status_code, list(answer.json())) == (status, ["error"])
    assert words in answer.json()["error"]


def test_a_model_or_a_version_that_is_not_there(client):
    for where in ("/v1/models/other", f"{MODEL}/versions/7"):
        answer = client.post(f"{where}:stream", json={"instances": ["a"]})
        assert answer.status_code == 404
        assert "Servable not found" in answer.json()["error"]


def test_an_error_in_the_middle_is_the_last_event(client, counted):
    *before, (name, last) = all_events(client, {"instances": ["late"]})
    assert len(before) == 1
    assert (name, last) == ("error", {"error": "assertion failed: [no such word]"})
    counted("INVALID_ARGUMENT")


def test_a_client_that_hangs_up_ends_the_work(server, client, counted):
    with streamed(client, {"instances": ["endless"]}) as found:
        next(found)
    counted("CANCELLED")
    wait_until(lambda: not server.core._batcher._running)
    assert server.core._free_streams._value == server.core.options.max_stream_requests


def test_a_step_that_runs_is_stopped_when_its_client_hangs_up(server, counted):
    connection = http.client.HTTPConnection(server.rest_address)
    connection.request("POST", f"{MODEL}:stream", json.dumps({"instances": ["stuck"]}))
    wait_until(lambda: server.core._batcher._running)
    connection.close()
    counted("CANCELLED")
    wait_until(lambda: not server.core._batcher._running)
    assert server.core._free_streams._value == server.core.options.max_stream_requests


def streams(client):
    return metric(client, "t2t_serving_streams")["t2t_serving_streams"]


def test_those_that_are_open_are_counted(client):
    wait_until(lambda: streams(client) == 0)
    with streamed(client, {"instances": ["endless"]}) as one, streamed(client, {"instances": ["endless"]}) as two:
        assert next(one)[0] == next(two)[0] == ""
        assert streams(client) == 2
    wait_until(lambda: streams(client) == 0)


def test_others_have_their_turns(client):
    with streamed(client, {"instances": ["endless"]}) as one, streamed(client, {"instances": ["endless"]}) as two:
        assert next(one)[0] == next(two)[0] == ""
        assert predict(client, {"instances": ["a"]}).json()["predictions"][0]["translation"] == "A"


@contextlib.contextmanager
def running(export_dir, **options):
    server = Server(ServingOptions(str(export_dir), rest_port=0, grpc_port=0, num_streams=2, **options))
    server.start()
    try:
        with httpx.Client(base_url=f"http://{server.rest_address}", timeout=300) as client:
            yield server, client
    finally:
        server.stop()


@pytest.mark.integration
def test_limits_and_the_end_of_the_server(export_dir):
    with running(export_dir, max_stream_requests=1) as (server, client):
        with streamed(client, {"instances": ["endless"]}) as found:
            next(found)
            full = client.post(f"{MODEL}:stream", json={"instances": ["a"]})
            assert (full.status_code, full.headers["retry-after"]) == (503, "1")
            assert "max_stream_requests=1" in full.json()["error"]
        wait_until(lambda: server.core._free_streams._value == 1)
        assert [name for name, _ in all_events(client, {"instances": ["ab"]})] == ["end"]
        with streamed(client, {"instances": ["endless"]}) as found:
            next(found)
            server.core.abandon()  # as after the time for what runs
            *_, (name, last) = found
            assert (name, last) == ("error", {"error": "the server is stopping"})
        assert not server.stop(), "some requests were not answered"


def hits_and_misses(client):
    names = [f"t2t_serving_cache_{kind}_total" for kind in ("hits", "misses")]
    return [metric(client, name)[name] for name in names]


@pytest.mark.integration
def test_what_is_kept_is_sent_at_once(export_dir):
    with running(export_dir, cache_bytes=10**6, max_stream_requests=1) as (_, client):
        first, again = (all_events(client, {"instances": ["hello"]}) for _ in range(2))
        assert [name for name, _ in first] == ["", "", "end"]
        assert again == first[-1:]
        assert hits_and_misses(client) == [1, 1]
        # What has grown is for streams alone, and what was asked for at once is for both.
        answer = predict(client, {"instances": ["hello"]}).json()
        assert hits_and_misses(client) == [1, 2]
        other = predict(client, {"inputs": {"text": ["other"]}}).json()
        with streamed(client, {"instances": ["endless"]}) as found:
            next(found)
            assert all_events(client, {"inputs": {"text": ["other"]}}) == [("end", other)], "it needs no room"
            assert all_events(client, {"instances": ["hello"]}) == [("end", answer)]
        assert hits_and_misses(client) == [3, 4]


@pytest.mark.integration
def test_a_version_stays_until_its_answer_has_ended(export_dir, versions_1_and_2):
    with running(export_dir) as (server, client):
        with streamed(client, {"instances": ["endless"]}) as found:
            next(found)
            shutil.copytree(versions_1_and_2 / "2", export_dir / "2")
            server.core.models.first.poll()
            assert server.core.models.first.served == 2
            assert {s.version: s.state for s in server.core.models.first.statuses()} == {1: "UNLOADING", 2: "AVAILABLE"}
            assert next(found)[0] == ""
        wait_until(lambda: server.core._free_streams._value == server.core.options.max_stream_requests)
        wait_until(lambda: server.core.models.first.statuses()[-1].state == "END")
        assert {s.version: s.state for s in server.core.models.first.statuses()} == {1: "END", 2: "AVAILABLE"}


def test_an_export_whose_answers_do_not_grow(server, client):
    with server.core.lend("toy", None) as loan:
        signatures = loan.model.signatures
        try:
            loan.model.signatures = {name: s for name, s in signatures.items() if name != "stream_begin"}
            answer = client.post(f"{MODEL}:stream", json={"instances": ["a"]})
        finally:
            loan.model.signatures = signatures
    assert answer.status_code == 501
    assert answer.json()["error"].startswith("version 1 has no signatures 'stream_begin' and 'stream_advance'")
