"""A server that starts, or does not, and is stopped."""

import socket

import pytest

from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.server import Server


def options(export_dir, **settings):
    return ServingOptions(str(export_dir), **{"rest_port": 0, "grpc_port": 0, **settings})


def test_it_may_be_stopped_twice(export_dir):
    server = Server(options(export_dir))
    server.start()
    assert server.stop() and server.stop()
    Server(options(export_dir)).stop()


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
