"""The gRPC interface over a real channel: responses, errors, deadlines, and agreement with REST."""

import json
import threading
import urllib.request

import grpc
import httpx
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from t2t_keras.serving import off_loop
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def channel(server):
    with grpc.insecure_channel(server.grpc_address) as channel:
        yield channel


@pytest.fixture(scope="module")
def prediction(channel):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


def metrics(server) -> str:
    """Reads the metrics without httpx, whose clients load all certificates of the machine."""
    with urllib.request.urlopen(f"http://{server.rest_address}/monitoring/prometheus/metrics", timeout=300) as answer:
        return answer.read().decode()


@pytest.fixture(scope="module")
def rest(server):
    """Calls the REST interface with GET, or with POST if there is a body."""
    with httpx.Client(timeout=300) as client:

        def call(rest, body=None):
            where = f"http://{server.rest_address}/v1/models/toy{rest}"
            return client.get(where) if body is None else client.post(where, content=json.dumps(body))

        yield call


def request(signature="", version=None, outputs=(), **inputs):
    spec = model_pb2.ModelSpec(name="toy", signature_name=signature)
    if version is not None:
        spec.version.value = version
    predict_request = predict_pb2.PredictRequest(model_spec=spec, output_filter=outputs)
    for name, value in inputs.items():
        predict_request.inputs[name].CopyFrom(
            value if isinstance(value, tensor_pb2.TensorProto) else tf.make_tensor_proto(value)
        )
    return predict_request


def arrays(response):
    return {name: tf.make_ndarray(proto).tolist() for name, proto in response.outputs.items()}


def error_of(call, *arguments, **settings):
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, timeout=300, **settings)
    return caught.value.code().name, caught.value.details()


def test_predict(prediction):
    response = prediction.Predict(request(text=["hällo", "本日"]))
    assert arrays(response)["translation"] == ["OLLÄH".encode(), "日本".encode()]
    assert list(response.outputs["score"].float_val) == pytest.approx([-0.6, -0.6])
    assert response.outputs["score"].dtype == types_pb2.DT_FLOAT
    spec = response.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("toy", 1, "serving_default")


def test_output_filter(prediction):
    expected = prediction.Predict(request(outputs=["score"], text=["a"]))
    assert list(expected.outputs) == ["score"]
    code, details = error_of(prediction.Predict, request(outputs=["points"], text=["a"]))
    assert code == "INVALID_ARGUMENT" and "'points'" in details and "'score', 'translation'" in details
    assert error_of(prediction.Predict, request(outputs=["score", "score"], text=["a"]))[0] == "INVALID_ARGUMENT"


def test_tensors_of_every_encoding(prediction):
    """Values in typed fields, as raw content, and one value for all elements."""
    ids = tf.make_tensor_proto([[1, 2, 3], [4, 5, 6]], tf.int32)
    assert ids.tensor_content
    repeated = tensor_pb2.TensorProto(dtype=types_pb2.DT_INT32, int_val=[3])
    repeated.tensor_shape.dim.add(size=2)
    answer = arrays(prediction.Predict(request("tokens", ids=ids, length=repeated)))
    assert answer == {"reversed": [[3, 2, 1], [6, 5, 4]], "sum": [6, 15]}
    kinds = prediction.Predict(request("kinds", number=[0.5], flag=[True], raw=[b"\xff\x00"]))
    assert arrays(kinds) == {"number": [0.5], "flag": [True], "raw_bytes": [b"\xff\x00"], "int64": [1]}


CASES = [
    ("", {"text": ["hällo", "a", ""]}),
    ("nbest", {"text": ["ä"] * 30}),
    ("single", {"text": ["x"]}),
    ("pieces", {"text": ["abc", "ä"]}),
    ("total", {"text": ["abc", "ä"]}),
    ("square", {"text": ["a", "a" * 200]}),
    ("sample", {"text": ["a", "b"], "seed": [1, -(2**62)]}),
    ("tokens", {"ids": [[1, 2], [3, 4]], "length": [1, 2]}),
]
BAD_CASES = [
    ("", {}),
    ("", {"text": []}),
    ("", {"text": "a"}),
    ("", {"txt": ["a"]}),
    ("", {"text": ["a"], "txt": ["a"]}),
    ("nothing", {"text": ["a"]}),
    ("picky", {"text": ["bad"]}),
    ("sample", {"text": ["a", "b"], "seed": [1]}),
    ("", {"text": ["a"] * 41}),
    ("", {"text": ["a" * 301]}),
    ("tokens", {"ids": [[1] * 51], "length": [1]}),
    ("tokens", {"ids": [[1], [2]], "length": [1]}),
    ("square", {"text": ["a"] * 39 + ["a" * 300]}),
    ("square", {"text": ["a" * 300] * 4}),
]


def protos(inputs):
    kinds = {"text": tf.string, "txt": tf.string, "seed": tf.int64, "ids": tf.int32, "length": tf.int32}
    return {name: tf.make_tensor_proto(value, kinds[name]) for name, value in inputs.items()}


@pytest.mark.parametrize(("signature", "inputs"), CASES)
def test_rest_agrees_on_results(prediction, rest, signature, inputs):
    rpc_response = prediction.Predict(request(signature, **protos(inputs)))
    answer = rest(":predict", {"signature_name": signature, "inputs": inputs})
    outputs = answer.json()["outputs"]
    if len(rpc_response.outputs) == 1:
        outputs = {next(iter(rpc_response.outputs)): outputs}
    assert set(outputs) == set(rpc_response.outputs)
    for name, proto in rpc_response.outputs.items():
        array = tf.make_ndarray(proto)
        if proto.dtype == types_pb2.DT_STRING:
            array = np.vectorize(bytes.decode, otypes=[object])(array)
        # Floats agree as well, because JSON has enough digits to distinguish them.
        assert np.array_equal(np.array(outputs[name], array.dtype), array)


@pytest.mark.parametrize(("signature", "inputs"), BAD_CASES)
def test_rest_agrees_on_errors(prediction, rest, signature, inputs):
    code, details = error_of(prediction.Predict, request(signature, **protos(inputs)))
    answer = rest(":predict", {"signature_name": signature, "inputs": inputs})
    # For this error, TensorFlow Serving has a different code in gRPC.
    expected = "FAILED_PRECONDITION" if signature == "nothing" else "INVALID_ARGUMENT"
    assert (code, answer.status_code) == (expected, 400)
    assert details == answer.json()["error"]


def tensor_proto(dtype, sizes, **values):
    proto = tensor_pb2.TensorProto(dtype=dtype, **values)
    for size in sizes:
        proto.tensor_shape.dim.add(size=size)
    return proto


@pytest.mark.parametrize(
    ("proto", "words"),
    [
        (tf.make_tensor_proto([1]), ["'text'", "string", "DT_INT32"]),
        (tensor_pb2.TensorProto(), ["'text'", "DT_INVALID"]),
        (tensor_pb2.TensorProto(dtype=77), ["'text'", "77"]),
        (tensor_proto(types_pb2.DT_STRING, [1 << 40], string_val=[b"a"]), ["'text'", "shape", str(1 << 40)]),
        (tensor_proto(types_pb2.DT_STRING, [-1], string_val=[b"a"]), ["'text'", "shape", "-1"]),
        # Unpacking this tensor took as long as ten translations.
        (tensor_proto(types_pb2.DT_STRING, [5000], string_val=[b"a"]), ["5000 sentences in a request: the limit is"]),
        # The server once took seconds to multiply this many dimensions.
        (
            tensor_proto(types_pb2.DT_STRING, [2**62] * 1000, string_val=[b"a"]),
            ["'text' has 1000 dimensions: the limit is 16"],
        ),
        (tensor_proto(types_pb2.DT_STRING, [1], string_val=[b"a", b"b"]), ["'text'", "valid"]),
        (
            tensor_proto(types_pb2.DT_STRING, [1], tensor_content=b"a"),
            ["'text' has its strings in tensor_content; give them in string_val"],
        ),
    ],
)
def test_invalid_tensors(prediction, proto, words):
    code, details = error_of(prediction.Predict, request(text=proto))
    assert code == "INVALID_ARGUMENT" and all(word in details for word in words), details


def test_unknown_models_and_versions(prediction):
    other = predict_pb2.PredictRequest(model_spec=model_pb2.ModelSpec(name="other"))
    labelled = predict_pb2.PredictRequest(model_spec=model_pb2.ModelSpec(name="toy", version_label="stable"))
    for predict_request, code, words in [
        (other, "NOT_FOUND", "Latest(other)"),
        (labelled, "INVALID_ARGUMENT", "label: stable"),
        (request(version=7, text=["a"]), "NOT_FOUND", "Specific(toy, 7)"),
        (predict_pb2.PredictRequest(), "INVALID_ARGUMENT", "Missing ModelSpec"),
        (predict_pb2.PredictRequest(model_spec=model_pb2.ModelSpec()), "INVALID_ARGUMENT", "no name"),
    ]:
        actual_code, details = error_of(prediction.Predict, predict_request)
        assert actual_code == code and words in details


def test_message_larger_than_the_limit(prediction):
    code, details = error_of(prediction.Predict, request(text=["a" * 10_000_000]))
    assert code == "RESOURCE_EXHAUSTED" and "20000" in details
    assert prediction.Predict(request(text=["a"]))


def num_requests(server, outcome):
    """The number of gRPC requests with this outcome."""
    text = metrics(server)
    start = f't2t_serving_requests_total{{interface="grpc",outcome="{outcome}",signature="unknown"}}'
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(start))


def test_unimplemented_methods(server, prediction, channel):
    models = model_service_pb2_grpc.ModelServiceStub(channel)
    before = num_requests(server, "UNIMPLEMENTED")
    for call, message in [
        (prediction.Classify, classification_pb2.ClassificationRequest()),
        (prediction.Regress, regression_pb2.RegressionRequest()),
        (prediction.MultiInference, inference_pb2.MultiInferenceRequest()),
        (models.HandleReloadConfigRequest, model_management_pb2.ReloadConfigRequest()),
    ]:
        code, details = error_of(call, message)
        assert code == "UNIMPLEMENTED" and details.endswith(" is not supported")
    assert num_requests(server, "UNIMPLEMENTED") == before + 4


@pytest.mark.parametrize(
    ("method", "code", "details"),
    [
        ("PredictionService/Predict", "INVALID_ARGUMENT", "the message is not a valid PredictRequest"),
        (
            "PredictionService/GetModelMetadata",
            "INVALID_ARGUMENT",
            "the message is not a valid GetModelMetadataRequest",
        ),
        ("ModelService/GetModelStatus", "INVALID_ARGUMENT", "the message is not a valid GetModelStatusRequest"),
        ("PredictionService/Classify", "UNIMPLEMENTED", "Classify is not supported"),
        ("ModelService/HandleReloadConfigRequest", "UNIMPLEMENTED", "HandleReloadConfigRequest is not supported"),
    ],
)
def test_invalid_messages_are_rejected_and_counted(server, channel, caplog, method, code, details):
    """Each of these messages wrote a traceback to the log, and its error named only a class."""
    before = num_requests(server, code)
    for message in (b"\xff", b"\x0a\xff\xff", b"\x0a\x03\x0a\x01\xff"):
        assert error_of(channel.unary_unary(f"/tensorflow.serving.{method}"), message) == (code, details)
    assert num_requests(server, code) == before + 3
    assert not caplog.records


def test_status(channel, rest):
    models = model_service_pb2_grpc.ModelServiceStub(channel)
    spec = model_pb2.ModelSpec(name="toy")
    response = models.GetModelStatus(get_model_status_pb2.GetModelStatusRequest(model_spec=spec))
    (status,) = response.model_version_status
    assert (status.version, status.state) == (1, get_model_status_pb2.ModelVersionStatus.AVAILABLE)
    assert json_format.Parse(rest("").text, get_model_status_pb2.GetModelStatusResponse()) == response
    spec.version.value = 7
    answer = error_of(models.GetModelStatus, get_model_status_pb2.GetModelStatusRequest(model_spec=spec))
    assert answer == ("NOT_FOUND", "Could not find version 7 of model toy")
    assert error_of(models.GetModelStatus, get_model_status_pb2.GetModelStatusRequest())[0] == "INVALID_ARGUMENT"


def test_metadata(prediction, rest):
    def metadata_request(*fields):
        spec = model_pb2.ModelSpec(name="toy")
        return get_model_metadata_pb2.GetModelMetadataRequest(model_spec=spec, metadata_field=fields)

    response = prediction.GetModelMetadata(metadata_request("signature_def"))
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    assert set(signatures.signature_def["tokens"].inputs) == {"ids", "length"}
    assert response.model_spec.version.value == 1
    same = json.dumps(rest("/metadata").json()["metadata"]["signature_def"])
    assert json_format.Parse(same, get_model_metadata_pb2.SignatureDefMap()) == signatures
    assert error_of(prediction.GetModelMetadata, metadata_request())[0] == "INVALID_ARGUMENT"
    assert error_of(prediction.GetModelMetadata, metadata_request("weights"))[0] == "INVALID_ARGUMENT"


@pytest.mark.parametrize("how", ["deadline", "cancelled"])
def test_cancelled_and_expired_calls_do_not_run(server, prediction, rest, tmp_path, how):
    def metric(name):
        text = metrics(server)
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{name} "))

    gate, batches, waiting = tmp_path / "open", "t2t_serving_batch_sentences_count", "t2t_serving_queue_sentences"
    before = metric(batches)
    blockers = [prediction.Predict.future(request("gate", text=[str(gate)] * 8), timeout=300) for _ in range(2)]
    wait_until(lambda: metric(batches) == before + 2)
    given_up = prediction.Predict.future(request(text=["a"] * 3), timeout=5 if how == "deadline" else 30)
    wait_until(lambda: metric(waiting) == 3)
    if how == "cancelled":
        given_up.cancel()
    wait_until(lambda: metric(waiting) == 0)
    gate.write_text("")
    assert all(call.result(300).outputs for call in blockers)
    assert metric(batches) == before + 2
    if how == "deadline":
        assert given_up.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_large_calls_that_are_cancelled_during_parsing_do_not_run(server, prediction, monkeypatch):
    started, submitted, read, submit = [], [], threading.Event(), server.core.submit

    def cancelled():
        text = metrics(server)
        lines = [line for line in text.splitlines() if line.startswith("t2t_serving_requests_total{")]
        return sum(float(line.split()[-1]) for line in lines if "CANCELLED" in line and '"grpc"' in line)

    def submit_late(*arguments):
        started.append(arguments)
        assert read.wait(300)
        submitted.append(submit(*arguments))
        return submitted[-1]

    monkeypatch.setattr(off_loop, "_LARGE_BYTES", 0)
    monkeypatch.setattr(server.core, "submit", submit_late)
    before = cancelled()
    calls = [prediction.Predict.future(request("endless", text=["a"]), timeout=300) for _ in range(2)]
    wait_until(lambda: len(started) == 2)
    for call in calls:
        call.cancel()
    wait_until(lambda: cancelled() == before + 2)
    read.set()
    monkeypatch.undo()
    wait_until(lambda: len(submitted) == 2 and all(future.cancelled() for future in submitted))
