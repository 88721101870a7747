"""Calls of signatures, and their time limits."""

import asyncio
from concurrent.futures import Future

import numpy as np
import pytest

from t2t_keras.serving.http.fields import FieldCall
from t2t_keras.serving.request_errors import ServingError
from tests.serving.http.test_streams import serve
from tests.serving.rest_calls import predict


def texts(*values):
    return {"text": np.array(values, object)}


def test_a_rejected_call_cancels_the_other_calls_of_its_request(server, monkeypatch):
    core, queued = server.core, []
    queue = core._batcher.submit
    monkeypatch.setattr(core._batcher, "submit", lambda *call: queued.append(queue(*call)) or queued[-1])
    try:
        with core.lend("toy", None) as loan, pytest.raises(ServingError, match="max_sentence_bytes=300"):
            core.submit_all(loan, [("endless", texts(b"a")), ("endless", texts(b"x" * 301))])
        assert [future.cancelled() for future in queued] == [True]
    finally:
        for future in queued:
            future.cancel()


@pytest.mark.parametrize(("client", "expected"), [(None, 30.0), (1000.0, 30.0), (2.0, 2.0)])
def test_time_limit_is_the_shorter_of_client_and_server(server, monkeypatch, client, expected):
    core, waits = server.core, []
    monkeypatch.setattr(core._batcher, "submit", lambda *call: waits.append(call[-1]) or Future())
    with core.lend("toy", None) as loan:
        core.submit(loan, loan.model.signature(""), texts(b"a"), client).cancel()
    assert waits == [expected]


def test_only_the_first_call_of_a_request_can_be_rejected_by_a_full_queue(server, monkeypatch):
    core, waits, futures = server.core, [], [Future() for _ in range(3)]
    futures[0].set_result(texts(b"A"))  # as if it were in the cache
    calls = iter(futures)
    monkeypatch.setattr(core._batcher, "submit", lambda *call: waits.append(call[-1]) or next(calls))
    with core.lend("toy", None) as loan:
        core.submit_all(loan, [("", texts(b"a")), ("", texts(b"b")), ("", texts(b"c"))])
    assert waits == [30.0, 30.0, None]
    for future in futures:
        future.cancel()


def test_the_second_round_of_a_request_is_always_accepted(server, monkeypatch):
    core, waits = server.core, []
    monkeypatch.setattr(core._batcher, "submit", lambda *call: waits.append(call[-1]) or Future())
    with core.lend("toy", None) as loan:
        call = FieldCall(core, loan, {}, "markup")
        for text in (b"a", b"b"):
            call.submit([("", texts(text))])
        call.close()
    assert [wait is None for wait in waits] == [False, True]


def test_later_turns_of_a_stream_are_always_accepted(server, monkeypatch):
    core, waits = server.core, []

    def turn(signature, inputs, costs, seconds):
        waits.append(seconds)
        future = Future()
        future.set_result({"translation": np.array([b"A"], object), "done": np.array(len(waits) == 2)})
        return future

    async def both(stream):
        return [(await stream.turn())[1] for _ in range(2)]

    monkeypatch.setattr(core._batcher, "submit", turn)
    with core.lend("toy", None) as loan:
        stream = core.begin_stream(loan, texts(b"a"))
        assert asyncio.run(both(stream)) == [False, True]
        stream.close()
    assert waits == [core.options.request_seconds, None]


def test_turns_share_one_time_limit(server):
    assert server.core.options.request_seconds == 30.0
    with pytest.raises(ServingError, match="no answer within request_seconds=30"):
        asyncio.run(asyncio.wait_for(server.core.outputs(Future(), 0.05), 10))


@pytest.mark.integration
def test_closed_server_does_not_serve_from_the_cache(export_dir):
    with serve(export_dir, cache_bytes=10**6) as (server, client):
        assert predict(client, {"instances": ["ab"]}).status_code == 200
        core = server.core
        with core.lend("toy", None) as loan:
            signature = loan.model.signature("")
            assert core.submit(loan, signature, texts(b"ab")).result(300)["translation"].tolist() == [b"BA"]
            assert core.close(10)
            with pytest.raises(ServingError, match="stopping"):
                core.submit(loan, signature, texts(b"ab"))
