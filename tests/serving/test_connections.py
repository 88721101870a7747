"""Slow, idle and numerous clients over real sockets: what they hold on to is bounded, and the others are served."""

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
from tests.attack.hostile_clients import place
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

LARGE = 64 << 20
LIMIT = 8
PATIENCE = 300  # seconds that a busy machine may take for what takes a second
LEFT = threading.Event()
GET = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def app(scope, receive, send):
    """/large answers with more than any buffer holds, /slow after a while.

    /read reads the body. /gone waits until the client is gone.
    """
    if scope["path"] == "/gone":
        await asyncio.wait([scope["state"]["gone"]])
        LEFT.set()
        return
    if scope["path"] == "/read":
        await receive()
        await asyncio.sleep(0.001)
    if scope["path"] == "/slow":
        await asyncio.sleep(1.0)
    size = LARGE if scope["path"] == "/large" else 1
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
    await send({"type": "http.response.body", "body": b"x" * size})


class Watched(connections.BoundedProtocol):
    """Notes of each client's address that its connection is accepted, what is written to it, and that it is gone."""

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
def quick():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "_CHECK_SECONDS", 0.05)
        patch.setattr(connections, "_HEAD_SECONDS", 1.0)
        patch.setattr(answers, "_SECONDS", 1.5)
        patch.setattr(answers, "_BYTES_A_SECOND", 4 << 20)  # some four megabytes are in the system's buffers
        yield


@pytest.fixture(scope="module")
def address(quick):
    listener = server.listen("127.0.0.1", 0)
    config = uvicorn.Config(app, http=Watched, limit_concurrency=LIMIT + 1, log_config=None, lifespan="off", ws="none")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(running.serve(sockets=[listener])))
    thread.start()
    yield listener.getsockname()
    running.should_exit = True
    thread.join(300)
    assert not thread.is_alive()


@contextlib.contextmanager
def connected(address, source="127.0.0.1"):
    with socket.socket() as connection:
        connection.bind((source, 0))
        # A small buffer, so that a client that does not read soon stops the server's writing.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        connection.settimeout(300)
        connection.connect(address)
        yield connection


def asked(connection, path=b""):
    """The answer to a small request."""
    connection.sendall(GET % path)
    found = b""
    while not found.endswith((b"\r\n\r\nx", b"}")):
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


@pytest.mark.parametrize("head", [b"", b"GET / HTTP/1.1\r\n" + b"X" * 1000])
def test_a_connection_that_sends_nothing_or_a_head_byte_by_byte_is_closed(address, head):
    with connected(address) as connection:
        assert 0.4 < seconds_open(connection, head) < PATIENCE


def test_a_client_that_asks_again_and_again_stays_connected(address):
    with connected(address) as connection:
        for _ in range(20):
            assert b" 200 OK" in asked(connection)
            time.sleep(0.06)


def test_an_idle_connection_is_kept_for_gateways(address):
    """By `timeout_keep_alive`, which is 5 s here: a gateway would send its next request into one that is closed."""
    with connected(address) as connection:
        assert b" 200 OK" in asked(connection)
        time.sleep(2.5 * connections._HEAD_SECONDS)
        assert b" 200 OK" in asked(connection)


def test_an_answer_that_takes_its_time_comes(address):
    with connected(address) as connection:
        assert b" 200 OK" in asked(connection, b"slow")


def test_an_answer_that_is_not_read_is_cut_off(address):
    with connected(address) as connection:
        connection.sendall(GET % b"large")
        wait_until(lambda: connection.getsockname() in Watched.gone)
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


def idle_clients(stack, address, source, number):
    """Connections that send nothing, once the server has taken them."""
    made = [stack.enter_context(connected(address, source)) for _ in range(number)]
    names = {connection.getsockname() for connection in made}
    wait_until(lambda: names <= Watched.accepted)
    return made


def refusal(connection):
    """What a connection is told that is not taken."""
    head, _, body = read_all(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n") and b"Retry-After: 1" in head
    return json.loads(body)["error"]


def read_all(connection):
    found = b""
    while more := connection.recv(1000):
        found += more
    return found


def test_a_client_with_many_idle_connections_shuts_nobody_out(address, monkeypatch):
    """1,100 of them did."""
    monkeypatch.setattr(connections, "_HEAD_SECONDS", 300.0)
    with contextlib.ExitStack() as stack:
        idle_clients(stack, address, "127.0.0.1", LIMIT // 2)
        for _ in range(3 * LIMIT):
            with connected(address) as connection:
                assert (
                    refusal(connection)
                    == "too many connections of 127.0.0.1: the limit is 4, half of max_connections=8"
                )
        with connected(address, "127.0.0.2") as other:
            assert b" 200 OK" in asked(other)
    with connected(address) as connection:
        assert b" 200 OK" in asked(connection)


def test_too_many_connections_of_all_clients_are_told(address, monkeypatch):
    monkeypatch.setattr(connections, "_HEAD_SECONDS", 300.0)
    with contextlib.ExitStack() as stack:
        first = idle_clients(stack, address, "127.0.0.1", LIMIT // 2)
        idle_clients(stack, address, "127.0.0.2", LIMIT // 2)
        with connected(address, "127.0.0.3") as connection:
            assert refusal(connection) == "too many connections: the limit is max_connections=8; try again later"
        # Those that were there are answered.
        assert b" 200 OK" in asked(first[0])


def test_what_is_no_http_is_told_in_json(address):
    with connected(address) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\r\n\r\n")
        head, _, body = read_all(connection).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n") and b"application/json" in head
        assert json.loads(body) == {"error": "Invalid HTTP request received."}


def chunked(*chunks):
    head = b"POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))


def test_a_body_in_chunks_of_a_byte_is_refused(address):
    """Eight such clients stopped the event loop for 22 seconds."""
    with connected(address) as connection:
        connection.sendall(chunked(*[b"x"] * 10_000))
        head, _, body = read_all(connection).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert json.loads(body) == {"error": "the chunks of the body are too small"}


def test_requests_ahead_of_their_answers_are_bounded(address):
    """A connection that sent them without end was 60 MB a second of memory."""
    with connected(address) as connection:
        connection.sendall(GET % b"x" * 50)
        found = b""
        while found.count(b" 200 OK") < 50:
            found += connection.recv(1 << 16)
    with connected(address) as connection:

        def send():
            with contextlib.suppress(ConnectionError):
                connection.sendall(GET % b"read" * 100_000)

        sending = threading.Thread(target=send)
        sending.start()
        read_to_end(connection)
        sending.join(300)
        client = connection.getsockname()
        wait_until(lambda: client in Watched.gone)
    # The client may have been sending still, and then does not see it.
    assert any(part.startswith(b"HTTP/1.1 400") for part in Watched.written[client])


@pytest.mark.parametrize(
    ("request_", "ahead"),
    [
        (GET % b"gone", b""),
        (GET % b"gone", GET % b"x"),
        (b"POST /gone HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nUpgrade: h2c\r\n\r\n", b"{}"),
    ],
    ids=["one", "two", "one that offers HTTP/2"],
)
def test_that_a_client_is_gone_is_told_whatever_it_has_sent(address, request_, ahead):
    LEFT.clear()
    with connected(address) as connection:
        connection.sendall(request_)
        wait_until(lambda: connection.getsockname() in Watched.accepted)
        time.sleep(0.1)
        connection.sendall(ahead)
        assert not LEFT.wait(0.2)
    assert LEFT.wait(PATIENCE)


@pytest.fixture
def empty_server(tmp_path):
    """Starts a server without a model, of some settings."""
    with contextlib.ExitStack() as stack:

        def start(**settings):
            (tmp_path / "toy").mkdir()
            running = server.Server(ServingOptions(str(tmp_path / "toy"), rest_port=0, grpc_port=0, **settings))
            running.start()
            stack.callback(running.stop)
            return running

        yield start


def test_connections_of_grpc_are_limited_too(empty_server):
    running = empty_server(max_connections=2)
    with contextlib.ExitStack() as stack:
        first = [stack.enter_context(connected(place(running.grpc_address))) for _ in range(2)]
        assert all(connection.recv(1) for connection in first)  # the server's first frame
        for _ in range(5):
            with connected(place(running.grpc_address)) as connection:
                assert read_to_end(connection) == 0


@pytest.mark.parametrize(("gateway", "taken"), [("127.0.0.0/8", 6), ("127.0.0.1", 6), ("127.0.0.2", 3), ("::1", 3)])
def test_a_gateway_may_have_all_connections_and_no_more(empty_server, gateway, taken):
    address = place(empty_server(max_connections=6, gateways=["10.0.0.0/8", gateway]).rest_address)
    with contextlib.ExitStack() as stack:
        for _ in range(taken):
            assert b" 200 OK" in asked(stack.enter_context(connected(address)), b"server.json")
        told = refusal(stack.enter_context(connected(address)))
        assert told.startswith("too many connections: " if taken == 6 else "too many connections of 127.0.0.1: ")


def test_a_grpc_connection_that_never_begins_is_closed(empty_server, monkeypatch):
    monkeypatch.setitem(server._GRPC_CONNECTIONS, "grpc.server_handshake_timeout_ms", 500)
    with connected(place(empty_server().grpc_address)) as connection:
        assert read_to_end(connection) < 1000
