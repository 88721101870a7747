"""Slow and idle clients over real sockets: what they hold on to is bounded, and the others are served."""

import asyncio
import contextlib
import socket
import threading
import time

import pytest
import uvicorn

from t2t_keras.serving import connections, server
from t2t_keras.serving.options import ServingOptions

pytestmark = pytest.mark.integration

LARGE = 64 << 20
PATIENCE = 300  # seconds that a busy machine may take for what takes a second
GET = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def app(scope, receive, send):
    """/large answers with more than any buffer holds, /slow after a while."""
    if scope["path"] == "/slow":
        await asyncio.sleep(1.0)
    size = LARGE if scope["path"] == "/large" else 1
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
    await send({"type": "http.response.body", "body": b"x" * size})


class Watched(connections.BoundedProtocol):
    """Notes of each client's port whether it was refused at once, and that its connection is gone."""

    refused: dict[int, bool] = {}
    gone: set[int] = set()

    def connection_made(self, transport):
        super().connection_made(transport)
        self.refused[self.client[1]] = transport.is_closing()

    def connection_lost(self, exc):
        super().connection_lost(exc)
        self.gone.add(self.client[1])


def wait_until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture(scope="module", autouse=True)
def quick():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "_LOOK_SECONDS", 0.05)
        patch.setattr(connections, "_HEAD_SECONDS", 1.0)
        patch.setattr(connections, "_WRITE_SECONDS", 1.5)
        yield


@pytest.fixture(scope="module")
def address(quick):
    listener = server.listen("127.0.0.1", 0)
    config = uvicorn.Config(app, http=Watched, limit_concurrency=4, log_config=None, lifespan="off", ws="none")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(running.serve(sockets=[listener])))
    thread.start()
    yield listener.getsockname()
    running.should_exit = True
    thread.join(300)
    assert not thread.is_alive()


@contextlib.contextmanager
def connected(address):
    with socket.socket() as connection:
        # A small buffer, so that a client that does not read soon stops the server's writing.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        connection.settimeout(300)
        connection.connect(address)
        yield connection


def asked(connection, path=b""):
    """The answer to a small request."""
    connection.sendall(GET % path)
    found = b""
    while not found.endswith((b"\r\n\r\nx", b"Service Unavailable")):
        assert (more := connection.recv(1000)), found
        found += more
    return found


def read_to_end(connection):
    size = 0
    with contextlib.suppress(ConnectionResetError):
        while found := connection.recv(1 << 20):
            size += len(found)
    return size


def seconds_open(connection, sends=b""):
    """How long the server lets a connection be, while it is sent a byte now and then."""
    start = time.monotonic()
    connection.settimeout(0.1)
    while time.monotonic() - start < PATIENCE:
        with contextlib.suppress(TimeoutError):
            if not connection.recv(1000):
                break
        try:
            connection.sendall(sends[:1])
        except OSError:
            break
        sends = sends[1:]
    return time.monotonic() - start


def test_a_connection_that_sends_nothing_is_closed(address):
    with connected(address) as connection:
        assert 0.4 < seconds_open(connection) < PATIENCE


def test_a_head_that_comes_byte_by_byte_is_not_waited_for(address):
    with connected(address) as connection:
        assert 0.4 < seconds_open(connection, b"GET / HTTP/1.1\r\n" + b"X" * 1000) < PATIENCE


def test_nor_after_an_answer(address):
    with connected(address) as connection:
        assert b" 200 OK" in asked(connection)
        assert 0.4 < seconds_open(connection, b"GET / HTTP/1.1\r\n" + b"X" * 1000) < PATIENCE


def test_a_client_that_asks_again_and_again_stays_connected(address):
    with connected(address) as connection:
        for _ in range(20):
            assert b" 200 OK" in asked(connection)
            time.sleep(0.06)


def test_an_answer_that_takes_its_time_comes(address):
    with connected(address) as connection:
        assert b" 200 OK" in asked(connection, b"slow")


def test_an_answer_that_is_not_read_is_cut_off(address):
    with connected(address) as connection:
        connection.sendall(GET % b"large")
        wait_until(lambda: connection.getsockname()[1] in Watched.gone)
        assert 0 < read_to_end(connection) < LARGE


def test_a_slow_reader_gets_all_of_it(address):
    with connected(address) as connection:
        connection.sendall(GET % b"large")
        size = 0
        while size < LARGE:
            size += len(connection.recv(1 << 20))
            if size < 4 << 20:
                time.sleep(0.02)
        assert size > LARGE


def test_too_many_connections_are_told_and_far_too_many_closed(address):
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connected(address)) for _ in range(3)]
        asking = stack.enter_context(connected(address))
        assert b" 503 " in asked(asking)
        more = [stack.enter_context(connected(address)) for _ in range(10)]
        ports = [connection.getsockname()[1] for connection in (*idle, asking, *more)]
        wait_until(lambda: set(ports) <= set(Watched.refused))
        refused = [Watched.refused[port] for port in ports]
        assert refused[-1] and not any(refused[:8])
        for connection in (*idle, *more):
            connection.close()
    with connected(address) as connection:
        assert b" 200 OK" in asked(connection)


def test_a_grpc_connection_that_never_begins_is_closed(tmp_path, monkeypatch):
    monkeypatch.setitem(server._GRPC_CONNECTIONS, "grpc.server_handshake_timeout_ms", 500)
    (tmp_path / "toy").mkdir()
    running = server.Server(ServingOptions(str(tmp_path / "toy"), rest_port=0, grpc_port=0))
    running.start()
    try:
        host, _, port = running.grpc_address.rpartition(":")
        with connected((host, int(port))) as connection:
            assert seconds_open(connection) < 10
    finally:
        assert running.stop()
