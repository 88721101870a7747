"""Valid and invalid requests of every kind at once over both interfaces: each gets its own response."""

import json
import random
import socket
import struct
from concurrent.futures import ThreadPoolExecutor

import grpc
import httpx
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from t2t_keras.serving.served_models import Model

pytestmark = pytest.mark.integration

NUM_REQUESTS, NUM_CLIENTS = 2000, 16
WORDS = ["Hund", "Katze", "größer", "日本語", "", "a b c", "1 2", "x" * 50]
# Mistakes of clients; a disconnected client gets no response.
FAULTS = ["no JSON", "no UTF-8", "wrong type", "wrong name", "empty", "too large", "too many", "bad word", "disconnect"]


def draw(seed):
    """A random request for a seed: signature, inputs, interface and fault."""
    random_ = random.Random(seed)
    rows = random_.randint(1, 10)
    texts = np.array([f"{random_.choice(WORDS)} {seed}".encode() for _ in range(rows)], object)
    signature = random_.choice(["serving_default", "nbest", "picky", "single", "sample", "pieces", "tokens"])
    if signature == "tokens":
        ids = np.array([[random_.randrange(99) for _ in range(5)] for _ in range(rows)], np.int32)
        inputs = {"ids": ids, "length": np.array([random_.randint(0, 5) for _ in range(rows)], np.int32)}
    elif signature == "sample":
        inputs = {"text": texts, "seed": np.array([random_.randrange(2**40) for _ in range(rows)], np.int64)}
    else:
        inputs = {"text": texts}
    fault = random_.choice(FAULTS) if random_.random() < 0.3 else ""
    return signature, inputs, random_.choice(["rest", "grpc"]), fault


def to_list(array):
    return np.vectorize(bytes.decode, otypes=[object])(array).tolist() if array.dtype == object else array.tolist()


def body(signature, inputs, fault):
    columns = {name: to_list(array) for name, array in inputs.items()}
    if fault == "wrong type":
        columns = {name: [{"x": 1}] for name in columns}
    if fault == "wrong name":
        columns["other"] = ["a"]
    if fault == "empty":
        columns = {name: [] for name in columns}
    if fault == "too large":
        columns["text"] = ["x" * 30_000]
    if fault == "too many":
        columns = {"text": ["x"] * 50}
        signature = "nbest"
    if fault == "bad word":
        columns = {"text": ["good", "bad"]}
        signature = "picky"
    content = json.dumps({"signature_name": signature, "inputs": columns}, ensure_ascii=False).encode()
    return (
        content[:-1] if fault == "no JSON" else content.replace(b"inputs", b"\xff") if fault == "no UTF-8" else content
    )


def message(signature, inputs, fault):
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "toy", signature
    if fault in ("no JSON", "no UTF-8", "wrong type"):
        inputs = {name: np.zeros([1], np.float64) for name in inputs}
    if fault == "wrong name":
        inputs = {**inputs, "other": np.zeros([1])}
    if fault == "empty":
        inputs = {name: array[:0] for name, array in inputs.items()}
    if fault == "too large":
        inputs = {"text": np.array([b"x" * 30_000], object)}
    if fault in ("too many", "bad word"):
        request.model_spec.signature_name = "picky"
        inputs = {"text": np.array([b"x"] * 50 if fault == "too many" else [b"good", b"bad"], object)}
    for name, array in inputs.items():
        kind = tf.string if array.dtype == object else None
        request.inputs[name].CopyFrom(tf.make_tensor_proto(array, kind, array.shape))
    return request


def disconnect(address, content):
    """Sends a request or a prefix of it, and resets the connection."""
    with socket.create_connection(address.split(":"), timeout=300) as connection:
        head = b"POST /v1/models/toy:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(content)
        connection.sendall((head + content)[: random.randrange(len(head + content)) + 1])
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def call_rest(server, http, signature, inputs, fault):
    content = body(signature, inputs, fault)
    if fault == "disconnect":
        return disconnect(server.rest_address, content)
    result = http.post(f"http://{server.rest_address}/v1/models/toy:predict", content=content)
    if result.status_code != 200:
        assert list(result.json()) == ["error"]
        return result.status_code
    return result.json()["outputs"]


def call_grpc(stub, signature, inputs, fault):
    request = message(signature, inputs, fault)
    if fault == "disconnect":
        stub.Predict.future(request, timeout=300).cancel()  # has no effect if the response has arrived
        return None
    try:
        outputs = stub.Predict(request, timeout=300).outputs
    except grpc.RpcError as error:
        return error.code().name
    results = {name: to_list(tf.make_ndarray(proto)) for name, proto in outputs.items()}
    return results if len(results) > 1 else next(iter(results.values()))


def expected_result(model, signature, inputs, interface, fault):
    """The expected result: for a valid request, the model's output for this request only."""
    if fault == "disconnect":
        return None
    if fault == "too large":
        return 413 if interface == "rest" else "RESOURCE_EXHAUSTED"
    if fault:
        return 400 if interface == "rest" else "INVALID_ARGUMENT"
    outputs = {name: to_list(array) for name, array in model.signature(signature).run(inputs).items()}
    return outputs if len(outputs) > 1 else next(iter(outputs.values()))


def test_mixed_requests(server, versions_1_and_2):
    def client(number):
        results = {}
        with httpx.Client(timeout=300) as http, grpc.insecure_channel(server.grpc_address) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            for seed in range(number, NUM_REQUESTS, NUM_CLIENTS):
                signature, inputs, interface, fault = draw(seed)
                if interface == "rest":
                    results[seed] = call_rest(server, http, signature, inputs, fault)
                else:
                    results[seed] = call_grpc(stub, signature, inputs, fault)
        return results

    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        results = {
            seed: result
            for client_results in pool.map(client, range(NUM_CLIENTS))
            for seed, result in client_results.items()
        }
    assert len(results) == NUM_REQUESTS
    model = Model(versions_1_and_2 / "1", 1)
    kinds = set()
    for seed, result in results.items():
        signature, inputs, interface, fault = draw(seed)
        expected = expected_result(model, signature, inputs, interface, fault)
        # Floats are written with the digits of float32, so they survive the round trip at that precision.
        same = result == expected if not isinstance(expected, dict) else equal_results(result, expected)
        assert same, (seed, signature, interface, fault, result, expected)
        kinds.add((interface, fault or signature))
    assert len(kinds) == 2 * (len(FAULTS) + 7)
    assert httpx.get(f"http://{server.rest_address}/v1/models/toy").status_code == 200


def equal_results(result, expected):
    if not isinstance(result, dict) or result.keys() != expected.keys():
        return False
    return all(
        np.array_equal(np.float32(result[name]), np.float32(expected[name]))
        if name == "score"
        else result[name] == value
        for name, value in expected.items()
    )
