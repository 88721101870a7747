"""A server that starts, or does not, and is stopped."""

import socket

import httpx
import pytest

from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.server import Server


def options(export_dir, **settings):
    return ServingOptions(str(export_dir), name="export", **{"rest_port": 0, "grpc_port": 0, **settings})


def test_it_may_be_stopped_twice(export_dir):
    server = Server(options(export_dir))
    server.start()
    assert server.stop() and server.stop()
    Server(options(export_dir)).stop()


def test_it_answers_while_it_loads(export_dir, monkeypatch):
    server, answers = Server(options(export_dir)), []
    start = server.core.models.start

    def ask_and_start():
        url = f"http://{server.rest_address}"
        answers.extend(httpx.get(f"{url}{path}", timeout=300) for path in ("/healthz", "/v1/models/export"))
        start()
        answers.append(httpx.get(f"{url}/v1/models/export", timeout=300))

    monkeypatch.setattr(server.core.models, "start", ask_and_start)
    server.start()
    try:
        assert [answer.status_code for answer in answers] == [200, 503, 200]
        assert answers[1].json() == {"model_version_status": []}
    finally:
        server.stop()


def test_one_that_did_not_start_has_ended_and_may_be_stopped(export_dir, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = Server(options(export_dir, grpc_port=taken.getsockname()[1]))
        with pytest.raises(OSError, match="cannot listen"):
            server.start()
    assert server.stop()
    server = Server(options(export_dir))
    monkeypatch.setattr(server.core.models, "start", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        server.start()
    assert server.stop() and not server._thread.is_alive()
