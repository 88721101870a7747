"""A field of a request is one object: what the server says of it and refuses follows from it."""

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
    """Translates each text and repeats it: all that a new field takes."""

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
    """For a signature that the model lacks."""

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


def test_a_new_field(client):
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
    ],
)
def test_what_is_refused(client, content, status, words):
    answer = predict(client, {"inputs": ["a"], **content})
    assert (answer.status_code, list(answer.json())) == (status, ["error"])
    assert words in answer.json()["error"]


def test_it_is_not_streamed(client):
    answer = client.post(f"{MODEL}:stream", json={"repeat": 2, "inputs": ["a"]})
    assert answer.status_code == 400
    assert "repeated translations cannot be streamed; use predict" in answer.json()["error"]
