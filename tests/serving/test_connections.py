"""Slow, idle and numerous clients over real sockets: their resources are bounded, and other clients are served."""

import asyncio
import contextlib
import json
import socket
import threading
import time

import pytest
import uvicorn

from t2t_keras.serving import answers, connections, server
from t2t_keras.serving.options import ServingOptions
from tests.attack.hostile_clients import host_and_port
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

LARGE = 64 << 20
LIMIT = 8
PATIENCE = 300  # seconds that a busy machine may need for one second of work
DISCONNECTED = threading.Event()
GET = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def application(scope, receive, send):
    """An application whose response to /large exceeds all buffers, and whose response to /slow is delayed.

    /read reads the body, and /gone waits until the client disconnects.
    """
    if scope["path"] == "/gone":
        await asyncio.wait([scope["state"]["gone"]])
        DISCONNECTED.set()
        return
    if scope["path"] == "/read":
        await receive()
        await asyncio.sleep(0.001)
    if scope["path"] == "/slow":
        await asyncio.sleep(1.0)
    size = LARGE if scope["path"] == "/large" else 1
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
    await send({"type": "http.response.body", "body": b"x" * size})


class RecordingProtocol(connections.BoundedProtocol):
    """Records by client address which connections are accepted and lost, and what is written to them."""

    accepted: set[tuple[str, int]] = set()
    gone: set[tuple[str, int]] = set()
    written: dict[tuple[str, int], list[bytes]] = {}

    def connection_made(self, transport):
        send, parts = transport.write, self.written.setdefault(transport.get_extra_info("peername"), [])
        transport.write = lambda data: (parts.append(bytes(data[:100])), send(data))
        super().connection_made(transport)
        if not transport.is_closing():
            self.accepted.add(self.client)

    def connection_lost(self, exc):
        super().connection_lost(exc)
        self.gone.add(self.client)


@pytest.fixture(scope="module", autouse=True)
def short_limits():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "_CHECK_SECONDS", 0.05)
        patch.setattr(connections, "_HEAD_SECONDS", 1.0)
        patch.setattr(answers, "_SECONDS", 1.5)
        patch.setattr(answers, "_BYTES_A_SECOND", 4 << 20)  # the buffers of the system hold about four megabytes
        yield


@pytest.fixture(scope="module")
def address(short_limits):
    listener = server.listen("127.0.0.1", 0)
    config = uvicorn.Config(
        application, http=RecordingProtocol, limit_concurrency=LIMIT + 1, log_config=None, lifespan="off", ws="none"
    )
    running = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(running.serve(sockets=[listener])))
    thread.start()
    yield listener.getsockname()
    running.should_exit = True
    thread.join(300)
    assert not thread.is_alive()


@contextlib.contextmanager
def connect(address, source="127.0.0.1"):
    with socket.socket() as connection:
        connection.bind((source, 0))
        # A small buffer, so that a client that does not read soon blocks the server's writes.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        connection.settimeout(300)
        connection.connect(address)
        yield connection


def get(connection, path=b""):
    """Sends a small request and returns the response."""
    connection.sendall(GET % path)
    received = b""
    while not received.endswith((b"\r\n\r\nx", b"}")):
        assert (more := connection.recv(1000)), received
        received += more
    return received


def read_to_end(connection):
    size = 0
    with contextlib.suppress(ConnectionResetError):
        while received := connection.recv(1 << 20):
            size += len(received)
    return size


def time_until_closed(connection, sends=b""):
    """The seconds until the server closes a connection to which a client sends single bytes."""
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


@pytest.mark.parametrize("head", [b"", b"GET / HTTP/1.1\r\n" + b"X" * 1000])
def test_idle_connections_and_slow_headers_are_closed(address, head):
    with connect(address) as connection:
        assert 0.4 < time_until_closed(connection, head) < PATIENCE


def test_active_connections_stay_open(address):
    with connect(address) as connection:
        for _ in range(20):
            assert b" 200 OK" in get(connection)
            time.sleep(0.06)


def test_idle_connections_after_a_request_stay_open_for_gateways(address):
    """Gateways reuse connections, so a connection stays open for `timeout_keep_alive`, 5 s here."""
    with connect(address) as connection:
        assert b" 200 OK" in get(connection)
        time.sleep(2.5 * connections._HEAD_SECONDS)
        assert b" 200 OK" in get(connection)


def test_slow_responses_arrive(address):
    with connect(address) as connection:
        assert b" 200 OK" in get(connection, b"slow")


def test_unread_responses_are_aborted(address):
    with connect(address) as connection:
        connection.sendall(GET % b"large")
        wait_until(lambda: connection.getsockname() in RecordingProtocol.gone)
        assert 0 < read_to_end(connection) < LARGE


def test_slow_readers_receive_the_whole_response(address):
    with connect(address) as connection:
        connection.sendall(GET % b"large")
        size = 0
        while size < LARGE:
            size += len(connection.recv(1 << 20))
            if size < 4 << 20:
                time.sleep(0.02)
        assert size > LARGE


def open_idle_connections(stack, address, source, number):
    """Opens connections that send nothing, and waits until the server has accepted them."""
    opened = [stack.enter_context(connect(address, source)) for _ in range(number)]
    names = {connection.getsockname() for connection in opened}
    wait_until(lambda: names <= RecordingProtocol.accepted)
    return opened


def read_error(connection):
    """The error that the server sends on a rejected connection."""
    head, _, body = read_all(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n") and b"Retry-After: 1" in head
    return json.loads(body)["error"]


def read_all(connection):
    received = b""
    while more := connection.recv(1000):
        received += more
    return received


def test_idle_connections_of_one_client_do_not_block_other_clients(address, monkeypatch):
    """1,100 idle connections blocked the server."""
    monkeypatch.setattr(connections, "_HEAD_SECONDS", 300.0)
    with contextlib.ExitStack() as stack:
        open_idle_connections(stack, address, "127.0.0.1", LIMIT // 2)
        for _ in range(3 * LIMIT):
            with connect(address) as connection:
                assert (
                    read_error(connection)
                    == "too many connections from 127.0.0.1: the limit is 4, half of max_connections=8"
                )
        with connect(address, "127.0.0.2") as other:
            assert b" 200 OK" in get(other)
    with connect(address) as connection:
        assert b" 200 OK" in get(connection)


def test_connection_limit_of_all_clients(address, monkeypatch):
    monkeypatch.setattr(connections, "_HEAD_SECONDS", 300.0)
    with contextlib.ExitStack() as stack:
        first = open_idle_connections(stack, address, "127.0.0.1", LIMIT // 2)
        open_idle_connections(stack, address, "127.0.0.2", LIMIT // 2)
        with connect(address, "127.0.0.3") as connection:
            assert read_error(connection) == "too many connections: the limit is max_connections=8; try again later"
        # Established connections are served.
        assert b" 200 OK" in get(first[0])


def test_lack_of_file_descriptors_is_logged_once(caplog):
    handle = connections.LoopErrors()
    for _ in range(3):
        context = {"message": "socket.accept() out of system resource", "exception": OSError("Too many open files")}
        handle(None, context)
    assert caplog.text.count("no new connections for now: Too many open files") == 1


def test_errors_of_invalid_http_are_json(address):
    with connect(address) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\r\n\r\n")
        head, _, body = read_all(connection).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n") and b"application/json" in head
        assert json.loads(body) == {"error": "Invalid HTTP request received."}


def chunked(*chunks):
    head = b"POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))


def test_bodies_in_tiny_chunks_are_rejected(address):
    """Eight such clients blocked the event loop for 22 seconds."""
    with connect(address) as connection:
        connection.sendall(chunked(*[b"x"] * 10_000))
        head, _, body = read_all(connection).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert json.loads(body) == {"error": "the chunks of the body are too small"}


def test_pipelined_requests_are_bounded(address):
    """A connection that sent requests without end cost 60 MB of memory per second."""
    with connect(address) as connection:
        connection.sendall(GET % b"x" * 50)
        received = b""
        while received.count(b" 200 OK") < 50:
            received += connection.recv(1 << 16)
    with connect(address) as connection:

        def send():
            with contextlib.suppress(ConnectionError):
                connection.sendall(GET % b"read" * 100_000)

        sending = threading.Thread(target=send)
        sending.start()
        read_to_end(connection)
        sending.join(300)
        client = connection.getsockname()
        wait_until(lambda: client in RecordingProtocol.gone)
    # The client may still be sending, and then does not receive the response.
    assert any(part.startswith(b"HTTP/1.1 400") for part in RecordingProtocol.written[client])


@pytest.mark.parametrize(
    ("first_data", "later_data"),
    [
        (GET % b"gone", b""),
        (GET % b"gone", GET % b"x"),
        (b"POST /gone HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nUpgrade: h2c\r\n\r\n", b"{}"),
    ],
    ids=["one request", "two requests", "offer of HTTP/2"],
)
def test_the_application_learns_that_a_client_has_disconnected(address, first_data, later_data):
    DISCONNECTED.clear()
    with connect(address) as connection:
        connection.sendall(first_data)
        wait_until(lambda: connection.getsockname() in RecordingProtocol.accepted)
        time.sleep(0.1)
        connection.sendall(later_data)
        assert not DISCONNECTED.wait(0.2)
    assert DISCONNECTED.wait(PATIENCE)


@pytest.fixture
def start_server(tmp_path):
    """Starts servers without a model."""
    with contextlib.ExitStack() as stack:

        def start(**settings):
            (tmp_path / "toy").mkdir()
            running = server.Server(ServingOptions(str(tmp_path / "toy"), rest_port=0, grpc_port=0, **settings))
            running.start()
            stack.callback(running.stop)
            return running

        yield start


def test_grpc_connections_are_limited(start_server):
    running = start_server(max_connections=2)
    with contextlib.ExitStack() as stack:
        first = [stack.enter_context(connect(host_and_port(running.grpc_address))) for _ in range(2)]
        assert all(connection.recv(1) for connection in first)  # the server's first frame
        for _ in range(5):
            with connect(host_and_port(running.grpc_address)) as connection:
                assert read_to_end(connection) == 0


@pytest.mark.parametrize(("gateway", "taken"), [("127.0.0.0/8", 6), ("127.0.0.1", 6), ("127.0.0.2", 3), ("::1", 3)])
def test_gateways_may_use_all_connections(start_server, gateway, taken):
    address = host_and_port(start_server(max_connections=6, gateways=["10.0.0.0/8", gateway]).rest_address)
    with contextlib.ExitStack() as stack:
        for _ in range(taken):
            assert b" 200 OK" in get(stack.enter_context(connect(address)), b"server.json")
        error = read_error(stack.enter_context(connect(address)))
        assert error.startswith("too many connections: " if taken == 6 else "too many connections from 127.0.0.1: ")


def test_grpc_connections_without_a_handshake_are_closed(start_server, monkeypatch):
    monkeypatch.setitem(server._GRPC_CONNECTIONS, "grpc.server_handshake_timeout_ms", 500)
    with connect(host_and_port(start_server().grpc_address)) as connection:
        assert read_to_end(connection) < 1000
