"""Good and bad requests of every kind at once, over both interfaces: nothing is mixed up and nothing falls over."""

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
# What a client can do wrong, and how REST and gRPC answer it; disconnecting gets no answer.
FAULTS = ["no JSON", "no UTF-8", "wrong type", "wrong name", "empty", "too large", "too many", "bad word", "disconnect"]


def draw(seed):
    """A request: signature, inputs, interface, fault; the same for the same seed."""
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


def listed(array):
    return np.vectorize(bytes.decode, otypes=[object])(array).tolist() if array.dtype == object else array.tolist()


def body(signature, inputs, fault):
    columns = {name: listed(array) for name, array in inputs.items()}
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
    made = predict_pb2.PredictRequest()
    made.model_spec.name, made.model_spec.signature_name = "toy", signature
    if fault in ("no JSON", "no UTF-8", "wrong type"):
        inputs = {name: np.zeros([1], np.float64) for name in inputs}
    if fault == "wrong name":
        inputs = {**inputs, "other": np.zeros([1])}
    if fault == "empty":
        inputs = {name: array[:0] for name, array in inputs.items()}
    if fault == "too large":
        inputs = {"text": np.array([b"x" * 30_000], object)}
    if fault in ("too many", "bad word"):
        made.model_spec.signature_name = "picky"
        inputs = {"text": np.array([b"x"] * 50 if fault == "too many" else [b"good", b"bad"], object)}
    for name, array in inputs.items():
        kind = tf.string if array.dtype == object else None
        made.inputs[name].CopyFrom(tf.make_tensor_proto(array, kind, array.shape))
    return made


def disconnect(address, content):
    """Sends a request, or a part of it, and resets the connection."""
    with socket.create_connection(address.split(":"), timeout=300) as connection:
        head = b"POST /v1/models/toy:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(content)
        connection.sendall((head + content)[: random.randrange(len(head + content)) + 1])
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def over_rest(server, http, signature, inputs, fault):
    content = body(signature, inputs, fault)
    if fault == "disconnect":
        return disconnect(server.rest_address, content)
    answer = http.post(f"http://{server.rest_address}/v1/models/toy:predict", content=content)
    if answer.status_code != 200:
        assert list(answer.json()) == ["error"]
        return answer.status_code
    return answer.json()["outputs"]


def over_grpc(stub, signature, inputs, fault):
    made = message(signature, inputs, fault)
    if fault == "disconnect":
        stub.Predict.future(made, timeout=300).cancel()  # without effect if the answer has come already
        return None
    try:
        outputs = stub.Predict(made, timeout=300).outputs
    except grpc.RpcError as error:
        return error.code().name
    found = {name: listed(tf.make_ndarray(proto)) for name, proto in outputs.items()}
    return found if len(found) > 1 else next(iter(found.values()))


def wanted(model, signature, inputs, interface, fault):
    """What a request must get: of a good one what the model says of it alone."""
    if fault == "disconnect":
        return None
    if fault == "too large":
        return 413 if interface == "rest" else "RESOURCE_EXHAUSTED"
    if fault:
        return 400 if interface == "rest" else "INVALID_ARGUMENT"
    outputs = {name: listed(array) for name, array in model.signature(signature).run(inputs).items()}
    return outputs if len(outputs) > 1 else next(iter(outputs.values()))


def test_mixed_requests(server, versions_1_and_2):
    def client(number):
        found = {}
        with httpx.Client(timeout=300) as http, grpc.insecure_channel(server.grpc_address) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            for seed in range(number, NUM_REQUESTS, NUM_CLIENTS):
                signature, inputs, interface, fault = draw(seed)
                if interface == "rest":
                    found[seed] = over_rest(server, http, signature, inputs, fault)
                else:
                    found[seed] = over_grpc(stub, signature, inputs, fault)
        return found

    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        found = {seed: answer for answers in pool.map(client, range(NUM_CLIENTS)) for seed, answer in answers.items()}
    assert len(found) == NUM_REQUESTS
    model = Model(versions_1_and_2 / "1", 1)
    kinds = set()
    for seed, answer in found.items():
        signature, inputs, interface, fault = draw(seed)
        want = wanted(model, signature, inputs, interface, fault)
        # Written in the digits of float32 and read back, numbers are the same to float32's precision.
        same = answer == want if not isinstance(want, dict) else _same(answer, want)
        assert same, (seed, signature, interface, fault, answer, want)
        kinds.add((interface, fault or signature))
    assert len(kinds) == 2 * (len(FAULTS) + 7)
    assert httpx.get(f"http://{server.rest_address}/v1/models/toy").status_code == 200


def _same(answer, want):
    if not isinstance(answer, dict) or answer.keys() != want.keys():
        return False
    return all(
        np.array_equal(np.float32(answer[name]), np.float32(want[name])) if name == "score" else answer[name] == value
        for name, value in want.items()
    )
