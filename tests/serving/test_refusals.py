"""Requests that the server rejects early appear in the metrics and the log, with bounded labels and lines."""

import contextlib
import socket

import grpc
import httpx
import pytest
from google.protobuf.wrappers_pb2 import StringValue
from prometheus_client.parser import text_string_to_metric_families
from tensorflow_serving.apis import get_model_status_pb2, model_pb2

from t2t_keras.serving import refusals
from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.server import Server

KEY = {"Authorization": "Bearer key"}
STATUS, PREDICT = "/tensorflow.serving.ModelService/GetModelStatus", "/tensorflow.serving.PredictionService/Predict"
HEALTH = "/grpc.health.v1.Health/Check"


@pytest.fixture
def refusing_server(tmp_path):
    (tmp_path / "toy").mkdir()
    (tmp_path / "keys").write_text("key\n")
    options = ServingOptions(
        str(tmp_path / "toy"), rest_port=0, grpc_port=0, api_key_file=str(tmp_path / "keys"), max_connections=4
    )
    server = Server(options)
    server.start()
    yield server
    assert server.stop()


@pytest.fixture
def rest(refusing_server):
    with httpx.Client(base_url=f"http://{refusing_server.rest_address}", timeout=300) as client:
        yield lambda path, method="GET", **headers: client.request(method, path, headers=headers).status_code


@pytest.fixture
def rpc(refusing_server):
    """Calls a method, and returns the name of the error."""
    with grpc.insecure_channel(refusing_server.grpc_address) as channel:

        def call(method, message=b"", *metadata):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(method)(message, metadata=metadata, timeout=300)
            return caught.value.code().name

        yield call


def counts(server):
    """The numbers of rejected requests by interface and reason."""
    (family,) = (
        family
        for family in text_string_to_metric_families(server.core.metrics.text().decode())
        if family.name == "t2t_serving_refusals"
    )
    samples = [sample for sample in family.samples if sample.name.endswith("_total")]
    return {(sample.labels["interface"], sample.labels["reason"]): sample.value for sample in samples}


def status_request(name):
    request = get_model_status_pb2.GetModelStatusRequest(model_spec=model_pb2.ModelSpec(name=name))
    return request.SerializeToString()


def test_rest_refusals_are_counted_and_logged(refusing_server, rest, caplog):
    assert rest("/v1/models/toy/metadata") == 401
    assert rest("/v1/models/toy", host="evil.example") == 403
    assert rest("/v1/models/other") == rest("/v1/models/toy/versions/7") == 404
    assert [rest("/v1/other", **KEY), rest("/nowhere", **KEY), rest("/healthz", "DELETE", **KEY)] == [400, 404, 405]
    with contextlib.ExitStack() as stack:
        address = refusing_server.rest_address.split(":")
        with socket.create_connection(address, timeout=300) as connection:
            connection.sendall(b"\x16\x03\x01\x02\x00\x01\r\n\r\n")
            assert b" 400 " in connection.recv(1000)
        opened = [stack.enter_context(socket.create_connection(address, timeout=300)) for _ in range(4)]
        assert b" 503 " in opened[-1].recv(1000)
    refusals_by_reason = counts(refusing_server)
    assert refusals_by_reason.pop(("rest", "connections")) >= 1
    assert refusals_by_reason == {("rest", "key"): 1, ("rest", "host"): 1, ("rest", "model"): 2, ("rest", "request"): 4}
    lines = [record.getMessage() for record in caplog.records if record.name == refusals.__name__]
    assert (
        "rest: refused 1 connections or requests, the last from 127.0.0.1; reason: no valid key" in lines
        and len(lines) == 5
    )


def test_grpc_refusals_are_counted_and_logged(refusing_server, rpc, caplog):
    key = ("authorization", "Bearer key")
    assert rpc(PREDICT) == "UNAUTHENTICATED"
    assert rpc(STATUS, status_request("other")) == "NOT_FOUND"
    assert rpc(HEALTH, StringValue(value="other").SerializeToString()) == "NOT_FOUND"
    assert rpc(STATUS) == "INVALID_ARGUMENT"
    assert rpc("/nothing.Like/That", b"", key) == "UNIMPLEMENTED"
    assert counts(refusing_server) == {("grpc", "key"): 1, ("grpc", "model"): 2, ("grpc", "request"): 2}
    lines = [record.getMessage() for record in caplog.records if record.name == refusals.__name__]
    assert len(lines) == 3 and lines[0].startswith("grpc: refused 1 connections or requests, the last from ipv4:127.0")


def test_clients_cannot_add_labels_or_log_lines(refusing_server, rest, rpc, caplog, monkeypatch):
    monkeypatch.setattr(refusals, "_SILENT_SECONDS", 1e9)
    for number in range(100):
        assert rest(f"/v1/models/name{number}") == 404
        assert rest(f"/{number}", f"M{number}", authorization=f"Bearer {number}") == 401
        assert rest("/", host=f"host{number}") == 403
        assert rpc(STATUS, status_request(f"name{number}")) == "NOT_FOUND"
    expected = [("rest", "model"), ("rest", "key"), ("rest", "host"), ("grpc", "model")]
    assert counts(refusing_server) == dict.fromkeys(expected, 100)
    assert len([record for record in caplog.records if record.name == refusals.__name__]) == 4
    monkeypatch.setattr(refusals, "_SILENT_SECONDS", 0.0)
    assert rest("/") == 401
    last = caplog.records[-1].getMessage()
    assert last == "rest: refused 100 connections or requests, the last from 127.0.0.1; reason: no valid key"
