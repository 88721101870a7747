"""Answers that clients do not read: their total memory and their time are bounded."""

import contextlib
import json
import socket
import struct
import weakref

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from t2t_keras.serving import grpc_service
from t2t_keras.serving.answers import UnsentAnswers, memory_of, seconds_to_send
from t2t_keras.serving.http import rest
from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.request_errors import Busy
from t2t_keras.serving.server import Server
from tests.attack.hostile_clients import status
from tests.serving.rest_calls import MODEL, metric
from tests.waiting import wait_until

LETTERS = 1400  # a `square` response of 7.8 MB exceeds the buffers of a connection
BYTES = 4 * LETTERS**2
UNSENT = "t2t_serving_unsent_bytes"


def test_unsent_answers_are_bounded():
    unsent = UnsentAnswers(100)
    first = unsent.add(60)
    with pytest.raises(Busy, match="60 bytes .* and 50 more .* max_unsent_bytes=100"):
        unsent.add(50)
    second = unsent.add(40)
    first()
    first()
    assert unsent.num_bytes == 40
    second()
    unsent.add(1000)()  # a single answer may have any size
    assert unsent.num_bytes == 0


def test_memory_of_outputs():
    texts = np.array([b"x" * 1000, b""], object)
    assert memory_of({"a": np.zeros([3, 5], np.float32)}) == 60
    assert 1000 < memory_of({"a": texts}) < 1200


def test_time_limit_grows_with_the_size_of_the_answer():
    assert 10 < seconds_to_send(1000) < 30
    assert 60 < seconds_to_send(16 << 20) < 600


@pytest.fixture(scope="module")
def server(versions_1_and_2):
    options = ServingOptions(
        str(versions_1_and_2), name="toy", rest_port=0, grpc_port=0, num_streams=2, max_unsent_bytes=int(2.5 * BYTES)
    )
    server = Server(options)
    server.start()
    yield server
    assert server.stop()


@pytest.fixture
def answers(monkeypatch):
    """Weak references to the tables of all large answers."""
    tables = []

    def measured(outputs):
        if "table" in outputs:
            tables.append(weakref.ref(outputs["table"]))
        return memory_of(outputs)

    for interface in (rest, grpc_service):
        monkeypatch.setattr(interface, "memory_of", measured)
    return tables


def unsent(client):
    return metric(client, UNSENT)[UNSENT]


@contextlib.contextmanager
def open_slow_reader(server):
    """A client that requests a large answer and does not read it yet."""
    body = json.dumps({"signature_name": "square", "inputs": ["a" * LETTERS]}).encode()
    head = f"POST {MODEL}:predict HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        connection.settimeout(300)
        connection.connect(("127.0.0.1", int(server.rest_address.rpartition(":")[2])))
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        yield connection


def square(letters):
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "toy", "square"
    request.inputs["text"].CopyFrom(tf.make_tensor_proto(["a" * letters]))
    return request


def open_channel(server):
    return grpc.insecure_channel(server.grpc_address, [("grpc.max_receive_message_length", -1)])


@pytest.mark.integration
def test_slow_readers_of_large_answers_share_a_budget(server, client, answers, without_gc):
    """Six readers of 16 MB, each requested with 1.5 kB, held 316 MB."""
    with contextlib.ExitStack() as stack, open_channel(server) as channel:
        readers = [stack.enter_context(open_slow_reader(server)) for _ in range(2)]
        assert [status(reader) for reader in readers] == [200, 200]
        assert unsent(client) == 2 * BYTES
        for _ in range(4):
            with open_slow_reader(server) as refused:
                assert status(refused) == 503
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        with pytest.raises(grpc.RpcError, match="max_unsent_bytes") as caught:
            stub.Predict(square(LETTERS), timeout=300)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        # Rejected answers are freed.
        wait_until(lambda: sum(answer() is not None for answer in answers) == 2)
        # Small answers do not count towards the budget.
        assert stub.Predict(square(5), timeout=300).outputs
        # One client reads its whole answer, and the other disconnects.
        assert unsent(client) == 2 * BYTES
        text = b""
        while more := readers[0].recv(1 << 20):
            text += more
        assert text.count(b"0.1") >= LETTERS**2
        wait_until(lambda: unsent(client) == BYTES)
        readers[1].close()
        wait_until(lambda: unsent(client) == 0)
        assert len(stub.Predict(square(LETTERS), timeout=300).outputs["table"].float_val) == LETTERS**2
        wait_until(lambda: unsent(client) == 0)


def frame(kind, flags, stream, content):
    """An HTTP/2 frame."""
    return struct.pack(">I", len(content))[1:] + struct.pack(">BBI", kind, flags, stream) + content


def field(name, value):
    """An uncompressed HTTP/2 header."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


@pytest.mark.integration
def test_grpc_clients_that_do_not_read_are_disconnected(server, client, monkeypatch):
    """With a window of 0, an HTTP/2 client receives no bytes."""
    monkeypatch.setattr(grpc_service, "seconds_to_send", lambda size: 0.2)
    with socket.create_connection(("127.0.0.1", int(server.grpc_address.rpartition(":")[2])), 300) as connection:
        message = square(LETTERS).SerializeToString()
        headers = {
            b":method": b"POST",
            b":scheme": b"http",
            b":path": b"/tensorflow.serving.PredictionService/Predict",
            b":authority": b"localhost",
            b"content-type": b"application/grpc",
            b"te": b"trailers",
        }
        no_window = struct.pack(">HI", 4, 0)
        connection.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + frame(4, 0, 0, no_window)
            + frame(1, 4, 1, b"".join(field(name, value) for name, value in headers.items()))
            + frame(0, 1, 1, b"\0" + struct.pack(">I", len(message)) + message)
        )
        wait_until(lambda: unsent(client) == BYTES)
        wait_until(lambda: unsent(client) == 0)
