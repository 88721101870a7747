"""The server derives documentation and checks from the object that defines a request field."""

import json
from typing import ClassVar

import httpx
import numpy as np
import pytest

from t2t_keras.errors import InputError
from t2t_keras.serving.http.marked import MarkupField
from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.server import Server
from tests.serving.rest_calls import MODEL, metric, predict


class Repeated:
    """A minimal field, which translates each text and repeats the translation."""

    name = noun = "repeat"
    requests, missing = "repeated translations", "cannot repeat"
    schema = {"type": "integer", "description": "how often each translation is repeated"}
    signatures = frozenset({"nbest"})
    refinements: ClassVar[dict] = {}
    automatic_for: frozenset[str] = frozenset()

    def begin(self, call):
        if type(call.value) is not int:
            raise InputError(f"repeat must be an integer, got {call.value}")
        texts = [text.encode() for text in call.texts()]
        return self._repeat(call, call.submit([("nbest", {"text": np.array(texts, object)})]))

    async def _repeat(self, call, futures):
        (outputs,) = await call.outputs(futures)
        if call.value < 0:
            raise InputError("repeat must not be negative")
        return {"translation": outputs["translations"][:, 1] * call.value}


class Silent(Repeated):
    """A field for a signature that the model lacks."""

    name, signatures = "silence", frozenset({"silent"})


@pytest.fixture(scope="module")
def client(versions_1_and_2, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fields") / "toy"
    folder.mkdir()
    (folder / "1").symlink_to(versions_1_and_2 / "1")
    options = ServingOptions(str(folder), rest_port=0, grpc_port=0)
    server = Server(options, fields=[MarkupField(None), Repeated(), Silent()])
    server.start()
    with httpx.Client(base_url=f"http://{server.rest_address}", timeout=300) as client:
        yield client
    assert not server.core.models.first._uses[server.core.models.first._served[1]]
    assert server.stop()


def test_custom_field(client):
    body = {"repeat": 2, "inputs": ["ab", "c"]}
    assert predict(client, body).json() == {"outputs": ["ABAB", "CC"]}
    assert predict(client, {"repeat": 3, "instances": ["c"]}).json() == {"predictions": ["CCC"]}
    escaped = json.dumps(body).replace("repeat", "rep\\u0065at")
    assert predict(client, escaped.encode()).json() == {"outputs": ["ABAB", "CC"]}
    assert metric(client, 't2t_serving_requests_total{interface="rest",outcome="OK",signature="repeat"}')
    properties = client.get("/openapi.json").json()["components"]["schemas"]["Request"]["properties"]
    assert list(properties) == [
        "signature_name",
        "instances",
        "inputs",
        "markup",
        "markup_attributes",
        "tag",
        "repeat",
        "silence",
    ]
    assert properties["repeat"] == {
        "type": "integer",
        "description": "only for predict: how often each translation is repeated",
    }


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        ({"repeat": "2"}, 400, "repeat must be an integer, got 2"),
        ({"repeat": -1}, 400, "repeat must not be negative"),
        ({"repeat": 2, "signature_name": "nbest"}, 400, "only 'serving_default' supports repeat"),
        ({"repeat": 2, "markup": "html"}, 400, "repeated translations cannot be combined with markup"),
        ({"repeat": 2, "inputs": ["x" * 5000]}, 400, "max_sentence_bytes=4096"),
        ({"repeat": 2, "inputs": ["a"] * 257}, 400, "max_sentences=256"),
        ({"silence": 2}, 501, "version 1 cannot repeat"),
        ({"Repeat": 2}, 400, 'unknown names in the body: "Repeat"; valid names: inputs, instances, markup'),
    ],
)
def test_rejected_requests(client, content, status, words):
    response = predict(client, {"inputs": ["a"], **content})
    assert (response.status_code, list(response.json())) == (status, ["error"])
    assert words in response.json()["error"]


def test_field_that_does_not_stream(client):
    response = client.post(f"{MODEL}:stream", json={"repeat": 2, "inputs": ["a"]})
    assert response.status_code == 400
    assert "repeated translations cannot be streamed; use predict" in response.json()["error"]
