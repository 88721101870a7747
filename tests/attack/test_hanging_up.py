"""Clients that disconnect while their large requests run do not block other requests."""

import statistics
import time

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from tests.attack.hostile_clients import ask, connect, metric, request
from tests.waiting import wait_until

pytestmark = pytest.mark.attack

ROWS, IDS = 24, 1000
TOKENS = {"source_ids": [[5] * IDS] * ROWS, "source_length": [IDS] * ROWS}
# A batch large enough that such a request is accepted.
BATCH_FLAG = "--max_batch_bytes=32768"
ROUNDS = 5
RUNS, WAITS = "t2t_serving_batch_sentences_count", "t2t_serving_queue_sentences"


@pytest.fixture(scope="module")
def server(serve):
    with serve(BATCH_FLAG) as server:
        yield server


def time_large_text(server):
    """The seconds for a text whose batch needs the stream of the disconnected clients."""
    started = time.monotonic()
    status, _ = ask(server.rest, request("serving_default", text=["Two dogs play in the snow. " * 20]))
    assert status == 200
    return time.monotonic() - started


def start_two_over_rest(server):
    """Starts two such requests, and returns functions that disconnect."""
    return [start_over_rest(server) for _ in range(2)]


def start_over_rest(server):
    connection = connect(server.rest)
    connection.__enter__().sendall(request("tokens", **TOKENS))
    return lambda: connection.__exit__(None, None, None)


def start_two_over_grpc(server):
    proto = predict_pb2.PredictRequest()
    proto.model_spec.name, proto.model_spec.signature_name = "model", "tokens"
    for name, value in TOKENS.items():
        proto.inputs[name].CopyFrom(tf.make_tensor_proto(value, tf.int32))
    channel = grpc.insecure_channel(server.grpc)
    call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    return [call.future(proto.SerializeToString(), timeout=60).cancel for _ in range(2)]


@pytest.mark.parametrize("start_two", [start_two_over_rest, start_two_over_grpc])
def test_large_requests_of_disconnected_clients_free_their_streams(server, report_line, start_two):
    quiet = statistics.median(time_large_text(server) for _ in range(ROUNDS))
    delays = []
    for _ in range(ROUNDS):
        before = metric(server, RUNS)
        disconnect = start_two(server)
        wait_until(lambda before=before: metric(server, RUNS) > before and metric(server, WAITS) == ROWS)
        time.sleep(0.3)
        for each in disconnect:
            each()
        delays.append(time_large_text(server) - quiet)
        wait_until(lambda: metric(server, WAITS) == 0)
    longest = max(delays)
    report_line(
        f"{start_two.__name__}: after both clients disconnected, a large text waited {1000 * longest:.0f} ms at most"
    )
    assert longest <= 0.5
