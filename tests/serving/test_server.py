"""Starting and stopping a server."""

import socket

import httpx
import pytest

from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.server import Server


def options(export_dir, **settings):
    return ServingOptions(str(export_dir), name="export", **{"rest_port": 0, "grpc_port": 0, **settings})


def test_stopping_twice(export_dir):
    server = Server(options(export_dir))
    server.start()
    assert server.stop() and server.stop()
    Server(options(export_dir)).stop()


def test_requests_during_loading(export_dir, monkeypatch):
    server, responses = Server(options(export_dir)), []
    start = server.core.models.start

    def request_and_start():
        url = f"http://{server.rest_address}"
        responses.extend(httpx.get(f"{url}{path}", timeout=300) for path in ("/healthz", "/v1/models/export"))
        start()
        responses.append(httpx.get(f"{url}/v1/models/export", timeout=300))

    monkeypatch.setattr(server.core.models, "start", request_and_start)
    server.start()
    try:
        assert [response.status_code for response in responses] == [200, 503, 200]
        assert responses[1].json() == {"model_version_status": []}
    finally:
        server.stop()


def test_failed_start(export_dir, monkeypatch):
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
