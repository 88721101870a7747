"""Thousands of connections that send nothing, and a server that has no descriptors left for more."""

import contextlib
import json
import os
import resource
import socket
import time

import grpc
import pytest
from tensorflow_serving.apis import get_model_status_pb2, model_pb2

from tests.attack.hostile_clients import PATIENCE, ask, connected, get, place, request
from tests.waiting import wait_until

pytestmark = pytest.mark.attack

IDLE = 2000
SPARE = 20  # descriptors that the server is left
SMALL = request("serving_default", text=["A man is standing."])
OTHER = "127.0.0.2"


@pytest.fixture(autouse=True)
def files():
    """The clients need a descriptor for each connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = IDLE + 500
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"needs {wanted} open files: ulimit -n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def idle_connections(address, number):
    """So many of one address, whether the server takes them or not."""
    with contextlib.ExitStack() as stack:
        for _ in range(number):
            connection = stack.enter_context(socket.socket())
            connection.setblocking(False)
            connection.connect_ex(place(address))
        yield


def test_idle_connections_of_one_address_leave_others_served(server, measured):
    with idle_connections(server.rest, IDLE):
        begun = time.monotonic()
        for _ in range(20):
            assert ask(server.rest, SMALL, OTHER)[0] == 200
        seconds = time.monotonic() - begun
        assert grpc_status(server) == "AVAILABLE"
    wait_until(lambda: ask(server.rest, SMALL)[0] == 200)
    measured(f"beside {IDLE:,} idle connections of one address, 20 short texts of another took {seconds:.1f} s")


def grpc_status(server):
    """The state of the model, by a new connection."""
    wanted = get_model_status_pb2.GetModelStatusRequest(model_spec=model_pb2.ModelSpec(name="model"))
    with grpc.insecure_channel(server.grpc) as channel:
        call = channel.unary_unary("/tensorflow.serving.ModelService/GetModelStatus")
        answer = get_model_status_pb2.GetModelStatusResponse.FromString(
            call(wanted.SerializeToString(), timeout=PATIENCE)
        )
    return get_model_status_pb2.ModelVersionStatus.State.Name(answer.model_version_status[0].state)


@contextlib.contextmanager
def few_descriptors(server):
    """Leaves a server that runs a few descriptors."""
    before = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    open_now = max(map(int, os.listdir(f"/proc/{server.pid}/fd")))
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (open_now + SPARE, before[1]))
    yield
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("port", ["rest", "grpc"])
def test_a_server_out_of_descriptors_answers_those_it_has(serve, measured, port):
    with serve() as server, grpc.insecure_channel(server.grpc) as channel, few_descriptors(server):
        health = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert health(b"", timeout=PATIENCE)
        with connected(server.rest) as known, idle_connections(getattr(server, port), 120):
            ask_again(known)
            cpu, begun, asked = server.cpu_seconds, time.monotonic(), 0
            while time.monotonic() < begun + 5:
                ask_again(known)
                assert health(b"", timeout=PATIENCE)
                asked += 1
                time.sleep(0.1)
            share = (server.cpu_seconds - cpu) / (time.monotonic() - begun)
        # Those that waited are taken once there is room again.
        wait_until(lambda: get(server.rest, "/v1/models/model")[0] == 200)
        lines = [line for line in server.log.splitlines() if "no new connections for now" in line]
        # The other line that there may be is of the directory with the versions, which cannot be read either.
        assert server.log.count("Too many open files") <= 2, server.log
        measured(f"out of descriptors at {port}: {asked} of {asked} requests answered, {share:.2f} of a core taken")
        # Where gRPC's are all taken, REST says so only if it is asked before they are free again.
        assert len(lines) == 1 or (port == "grpc" and not lines), server.log
        # It does not try again and again without a pause.
        assert share < 0.7


def ask_again(connection):
    """A request on a connection that is kept."""
    body = json.dumps({"inputs": {"text": ["A man is standing."]}}).encode()
    connection.sendall(
        b"POST /v1/models/model:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )
    found = b""
    while not found.endswith(b"}"):
        assert (more := connection.recv(4096)), found
        found += more
    assert found.startswith(b"HTTP/1.1 200 "), found
