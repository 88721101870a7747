"""Thousands of idle connections, and a server without free file descriptors."""

import contextlib
import json
import os
import resource
import socket
import time

import grpc
import pytest
from tensorflow_serving.apis import get_model_status_pb2, model_pb2

from tests.attack.hostile_clients import PATIENCE, ask, connect, get, host_and_port, request
from tests.waiting import wait_until

pytestmark = pytest.mark.attack

IDLE = 2000
SPARE = 20  # descriptors that the server may still open
SMALL = request("serving_default", text=["A man is standing."])
OTHER = "127.0.0.2"


@pytest.fixture(autouse=True)
def raised_file_limit():
    """Allows this process to open a descriptor for each connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    request_proto = IDLE + 500
    if hard != resource.RLIM_INFINITY and hard < request_proto:
        pytest.skip(f"needs {request_proto} open files: ulimit -n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, request_proto), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def idle_connections(address, number):
    """Opens connections from one address, whether or not the server accepts them."""
    with contextlib.ExitStack() as stack:
        for _ in range(number):
            connection = stack.enter_context(socket.socket())
            connection.setblocking(False)
            connection.connect_ex(host_and_port(address))
        yield


def test_idle_connections_of_one_address_do_not_block_other_clients(server, report_line):
    with idle_connections(server.rest, IDLE):
        started = time.monotonic()
        for _ in range(20):
            assert ask(server.rest, SMALL, OTHER)[0] == 200
        seconds = time.monotonic() - started
        assert grpc_status(server) == "AVAILABLE"
    wait_until(lambda: ask(server.rest, SMALL)[0] == 200)
    report_line(f"beside {IDLE:,} idle connections of one address, 20 short texts of another took {seconds:.1f} s")


def grpc_status(server):
    """The state of the model, read with a new connection."""
    request_proto = get_model_status_pb2.GetModelStatusRequest(model_spec=model_pb2.ModelSpec(name="model"))
    with grpc.insecure_channel(server.grpc) as channel:
        call = channel.unary_unary("/tensorflow.serving.ModelService/GetModelStatus")
        response = get_model_status_pb2.GetModelStatusResponse.FromString(
            call(request_proto.SerializeToString(), timeout=PATIENCE)
        )
    return get_model_status_pb2.ModelVersionStatus.State.Name(response.model_version_status[0].state)


@contextlib.contextmanager
def limit_descriptors(server):
    """Limits the file descriptors of a running server."""
    before = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    open_now = max(map(int, os.listdir(f"/proc/{server.pid}/fd")))
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (open_now + SPARE, before[1]))
    yield
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("port", ["rest", "grpc"])
def test_server_without_free_descriptors_serves_open_connections(serve, report_line, port):
    with serve() as server, grpc.insecure_channel(server.grpc) as channel, limit_descriptors(server):
        health = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert health(b"", timeout=PATIENCE)
        with connect(server.rest) as open_connection, idle_connections(getattr(server, port), 120):
            predict_on(open_connection)
            cpu, started, num_requests = server.cpu_seconds, time.monotonic(), 0
            while time.monotonic() < started + 5:
                predict_on(open_connection)
                assert health(b"", timeout=PATIENCE)
                num_requests += 1
                time.sleep(0.1)
            share = (server.cpu_seconds - cpu) / (time.monotonic() - started)
        # Waiting connections are accepted when descriptors are free again.
        wait_until(lambda: get(server.rest, "/v1/models/model")[0] == 200)
        lines = [line for line in server.log.splitlines() if "no new connections for now" in line]
        # The server may also log that it cannot read the directory with the versions.
        assert server.log.count("Too many open files") <= 2, server.log
        report_line(f"out of descriptors at {port}: {num_requests} requests answered, {share:.2f} of a core used")
        # If gRPC uses all descriptors, REST logs this only if it accepts a connection in the meantime.
        assert len(lines) == 1 or (port == "grpc" and not lines), server.log
        # The server pauses between attempts.
        assert share < 0.7


def predict_on(connection):
    """Sends a request on an open connection."""
    body = json.dumps({"inputs": {"text": ["A man is standing."]}}).encode()
    connection.sendall(
        b"POST /v1/models/model:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )
    received = b""
    while not received.endswith(b"}"):
        assert (more := connection.recv(4096)), received
        received += more
    assert received.startswith(b"HTTP/1.1 200 "), received
