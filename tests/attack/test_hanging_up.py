"""Clients that go away while their large requests run: the streams are free for others."""

import statistics
import time

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from tests.attack.hostile_clients import ask, connected, metric, request
from tests.waiting import wait_until

pytestmark = pytest.mark.attack

ROWS, IDS = 24, 1000
TOKENS = {"source_ids": [[5] * IDS] * ROWS, "source_length": [IDS] * ROWS}
# What a batch may hold, so that such a request is not refused.
ALLOWED = "--max_batch_bytes=32768"
ROUNDS = 5
RUNS, WAITS = "t2t_serving_batch_sentences_count", "t2t_serving_queue_sentences"


@pytest.fixture(scope="module")
def server(serve):
    with serve(ALLOWED) as server:
        yield server


def seconds_of_a_large_text(server):
    """As large a request as needs the stream that the others had."""
    begun = time.monotonic()
    status, _ = ask(server.rest, request("serving_default", text=["Two dogs play in the snow. " * 20]))
    assert status == 200
    return time.monotonic() - begun


def two_over_rest(server):
    """Two connections with such a request, and what hangs up."""
    return [hang_up_over_rest(server) for _ in range(2)]


def hang_up_over_rest(server):
    connection = connected(server.rest)
    connection.__enter__().sendall(request("tokens", **TOKENS))
    return lambda: connection.__exit__(None, None, None)


def two_over_grpc(server):
    made = predict_pb2.PredictRequest()
    made.model_spec.name, made.model_spec.signature_name = "model", "tokens"
    for name, value in TOKENS.items():
        made.inputs[name].CopyFrom(tf.make_tensor_proto(value, tf.int32))
    channel = grpc.insecure_channel(server.grpc)
    call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    return [call.future(made.SerializeToString(), timeout=60).cancel for _ in range(2)]


@pytest.mark.parametrize("two", [two_over_rest, two_over_grpc])
def test_two_large_requests_whose_clients_hang_up_free_their_streams(server, measured, two):
    quiet = statistics.median(seconds_of_a_large_text(server) for _ in range(ROUNDS))
    late = []
    for _ in range(ROUNDS):
        before = metric(server, RUNS)
        hang_up = two(server)
        wait_until(lambda before=before: metric(server, RUNS) > before and metric(server, WAITS) == ROWS)
        time.sleep(0.3)
        for each in hang_up:
            each()
        late.append(seconds_of_a_large_text(server) - quiet)
        wait_until(lambda: metric(server, WAITS) == 0)
    longest = max(late)
    measured(f"{two.__name__}: after they hung up, a large text waited for {1000 * longest:.0f} ms at most")
    assert longest <= 0.5
