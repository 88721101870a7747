"""TLS and API keys of both interfaces over real sockets, and the paths that need no key."""

import contextlib
import shutil
import socket
import ssl

import grpc
import httpx
import pytest
from google.protobuf.wrappers_pb2 import StringValue
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
)

from t2t_keras.errors import InputError
from t2t_keras.serving.access import ApiKeys, check_certificate
from t2t_keras.serving.connections import BoundedProtocol
from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.server import Server
from tests.serving.certificates import make_certificate

KEYS = ("first-key", "second-key")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secured(certificate, versions_1_and_2, tmp_path_factory):
    folder = tmp_path_factory.mktemp("secured")
    shutil.copytree(versions_1_and_2 / "1", folder / "toy" / "1")
    (folder / "keys").write_text("\n".join([KEYS[0], "", KEYS[1]]) + "\n")
    options = ServingOptions(
        str(folder / "toy"),
        rest_port=0,
        grpc_port=0,
        tls_certificate=certificate[0],
        tls_key=certificate[1],
        api_key_file=str(folder / "keys"),
    )
    server = Server(options)
    server.start()
    yield server
    assert server.stop()


@pytest.fixture(scope="module")
def https(secured, certificate):
    trust = ssl.create_default_context(cafile=certificate[0])
    with httpx.Client(base_url=f"https://{secured.rest_address}", verify=trust, timeout=300) as client:
        yield client


@pytest.fixture(scope="module")
def channel(secured, certificate):
    with open(certificate[0], "rb") as file:
        credentials = grpc.ssl_channel_credentials(file.read())
    with grpc.secure_channel(secured.grpc_address, credentials) as channel:
        yield channel


def translate(client, **headers):
    return client.post("/v1/models/toy:predict", json={"instances": ["abc"]}, headers=headers)


@pytest.mark.parametrize("key", KEYS)
def test_requests_with_a_valid_key(https, key):
    response = translate(https, Authorization=f"Bearer {key}")
    assert response.json()["predictions"][0]["translation"] == "CBA"


@pytest.mark.parametrize(
    "value", [None, "", "Bearer", "Bearer first-ke", "Bearer first-key2", "Basic first-key", "first-key"]
)
def test_requests_without_a_valid_key(https, value):
    response = translate(https, **({} if value is None else {"Authorization": value}))
    assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
    assert response.json() == {"error": "a key is required: send the header Authorization: Bearer KEY"}


def test_requests_on_a_rejected_connection_are_ignored(secured, certificate, https, monkeypatch):
    """The server has received a request that arrives with the end of the TLS handshake before it rejects the client."""
    submitted = []
    monkeypatch.setattr(BoundedProtocol, "_refusal", lambda self: "one too many")
    monkeypatch.setattr(secured.core, "submit", lambda *arguments: submitted.append(arguments))
    body = '{"instances": ["abc"]}'
    head = f"POST /v1/models/toy:predict HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEYS[0]}\r\n"
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    trust = ssl.create_default_context(cafile=certificate[0])
    connection = trust.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(secured.rest_address.split(":")) as raw:
        while True:
            try:
                connection.do_handshake()
                break
            except ssl.SSLWantReadError:
                raw.sendall(outgoing.read())
                incoming.write(raw.recv(1 << 16))
        connection.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        raw.sendall(outgoing.read())
        response = b""
        while not response.endswith(b'{"error": "one too many"}'):
            received = raw.recv(1 << 16)
            assert received
            incoming.write(received)
            with contextlib.suppress(ssl.SSLWantReadError):
                response += connection.read(1 << 16)
    assert response.startswith(b"HTTP/1.1 503 ")
    monkeypatch.undo()
    assert translate(https, Authorization=f"Bearer {KEYS[0]}").status_code == 200
    assert not submitted


def test_only_readiness_needs_no_key(https):
    paths = ["/v1/models/toy", "/v1/models/toy/versions/1", "/v1/models/other"]
    assert [https.get(path).status_code for path in paths] == [200, 200, 404]
    assert [https.head(path).status_code for path in (*paths, "/healthz")] == [200, 200, 404, 200]
    assert https.get("/healthz").text == "ok\n" and https.post("/healthz").status_code == 401
    closed = ["/v1/models/toy/metadata", "/monitoring/prometheus/metrics", "/server.json", "/", "/v1/models/toy%2f"]
    assert {https.get(path).status_code for path in closed[:-1]} == {401}
    assert https.get(closed[-1]).status_code == 404


def test_grpc_requires_a_key(channel):
    prediction = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    spec = model_pb2.ModelSpec(name="toy")
    request = get_model_metadata_pb2.GetModelMetadataRequest(model_spec=spec, metadata_field=["signature_def"])
    metadata = [("authorization", f"Bearer {KEYS[1]}")]
    response = prediction.GetModelMetadata(request, metadata=metadata, timeout=300)
    assert response.model_spec.version.value == 1
    for invalid in (None, [("authorization", "Bearer other")], [("authorization", KEYS[1])]):
        with pytest.raises(grpc.RpcError) as caught:
            prediction.GetModelMetadata(request, metadata=invalid, timeout=300)
        assert caught.value.code().name == "UNAUTHENTICATED" and "Bearer KEY" in caught.value.details()
    models = model_service_pb2_grpc.ModelServiceStub(channel)
    status = models.GetModelStatus(get_model_status_pb2.GetModelStatusRequest(model_spec=spec), timeout=300)
    assert status.model_version_status[0].version == 1
    health = channel.unary_unary("/grpc.health.v1.Health/Check")
    assert health(StringValue().SerializeToString(), timeout=300) == b"\x08\x01"


@pytest.mark.parametrize(
    ("content", "words"),
    [("", "no key"), ("\n \n", "no key"), ("key\nmy key\n", "line 2: a key must"), ("schlüssel", "line 1: a key must")],
)
def test_invalid_key_files(tmp_path, content, words):
    file = tmp_path / "keys"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=words) as caught:
        ApiKeys(str(file))
    message = str(caught.value)
    assert str(file) in message and "schl" not in message.replace(str(file), "")
    with pytest.raises(InputError, match="nowhere: No such file"):
        ApiKeys(str(tmp_path / "nowhere"))


def test_invalid_certificates(certificate, tmp_path):
    check_certificate(*certificate)
    noise = tmp_path / "noise.pem"
    noise.write_text("noise")
    for pair in ((str(noise), certificate[1]), (certificate[0], str(noise)), (certificate[0], certificate[0])):
        with pytest.raises(InputError) as caught:
            check_certificate(*pair)
        assert str(caught.value).startswith(f"{pair[0]} and {pair[1]} are not a PEM certificate")
    with pytest.raises(InputError, match="nowhere: No such file"):
        check_certificate(str(tmp_path / "nowhere"), certificate[1])
    with pytest.raises(InputError, match="tls_key"):
        ServingOptions(str(tmp_path), tls_certificate=certificate[0])
