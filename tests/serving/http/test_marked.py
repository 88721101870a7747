"""Documents with markup over REST: the server splits them into sentences with any reader."""

import httpx
import pytest

from t2t_keras.errors import InputError
from t2t_keras.serving.http.marked import MarkupField
from t2t_keras.serving.options import Limits, ServingOptions
from t2t_keras.serving.server import Server
from tests.serving import page_model
from tests.serving.rest_calls import metric

PREDICT = "/v1/models/shouting:predict"


class BracketReader:
    """Splits documents in brackets, such as [a][b]."""

    def __init__(self, markup, documents, attributes):
        if attributes:
            raise InputError(f"brackets have no attributes; got {attributes}")
        if markup != "brackets":
            raise InputError(f"markup must be brackets; got {markup!r}")
        self._parts = [document[1:-1].split("][") for document in documents]

    @property
    def texts(self):
        return [text for parts in self._parts for text in parts if text]

    def filled(self, outputs):
        rows = iter(outputs)
        return ["".join(f"[{self._row(next(rows)) if text else ''}]" for text in parts) for parts in self._parts]

    def _row(self, outputs):
        assert all(len(array) == 1 for array in outputs.values())
        assert b" ".join(piece for piece in outputs["target_pieces"][0] if piece) != b""
        return outputs["translation"][0].decode()


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    export_dir = page_model.save(tmp_path_factory.mktemp("shouting"), "nbest", "attention")
    options = ServingOptions(
        str(export_dir),
        name="shouting",
        rest_port=0,
        grpc_port=0,
        limits=Limits(max_sentences=20),
        max_batch_bytes=6000,
    )
    server = Server(options, fields=[MarkupField(BracketReader)])
    server.start()
    with httpx.Client(base_url=f"http://{server.rest_address}", timeout=300) as client:
        yield client
    assert server.stop()


def test_documents_are_translated_by_sentence(client):
    documents = ["[a][bb c][]", "[" + "][".join("word " * count for count in range(1, 15)) + "]"]
    expected = [document.upper() for document in documents]
    response = client.post(PREDICT, json={"markup": "brackets", "inputs": {"text": documents}})
    assert response.json() == {"outputs": expected}
    response = client.post(PREDICT, json={"markup": "brackets", "instances": documents})
    assert response.json() == {"predictions": expected}
    assert metric(client, 't2t_serving_requests_total{interface="rest",outcome="OK",signature="markup"}')


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        ({"markup": "html", "inputs": ["[a]"]}, 400, "markup must be brackets; got 'html'"),
        ({"markup": ["brackets"], "inputs": ["[a]"]}, 400, """'markup' must be a string, got ["brackets"]"""),
        ({"markup": [["x" * 5000]], "inputs": ["[a]"]}, 400, """got [["xxxx"""),
        (
            {"markup": "brackets", "inputs": ["[" + "a][" * 20 + "a]"]},
            400,
            "21 sentences in the documents: the limit is",
        ),
        ({"markup": "brackets", "inputs": [""] * 1000}, 400, "1000 documents in a request: the limit is max_sentences"),
        (
            {"markup": "brackets", "markup_attributes": ["alt"], "inputs": ["[a]"]},
            400,
            "brackets have no attributes; got ['alt']",
        ),
        (
            {"markup": "brackets", "markup_attributes": "alt", "inputs": ["[a]"]},
            400,
            """'markup_attributes' must be a list of strings, got "alt\"""",
        ),
        ({"markup_attributes": ["alt"], "inputs": ["[a]"]}, 400, "'markup_attributes' requires 'markup'"),
        ({"markup": "brackets", "tag": "<2de>", "inputs": ["[a]"]}, 400, "'tag' must be empty for a model of one"),
        ({"markup": "brackets", "tag": ["<2de>"], "inputs": ["[a]"]}, 400, "'tag' must be empty for a model of one"),
        ({"markup": "brackets", "inputs": []}, 400, "'text' must be a list of documents"),
        (
            {"markup": "brackets", "inputs": ["[a]"], "signature_name": "align"},
            400,
            "only 'serving_default' supports markup",
        ),
        ({"markup": "brackets", "inputs": ["[a]" * 2100]}, 400, "documents of 6300 bytes in a request: the limit is"),
        ({"markup": "brackets", "inputs": ["[" + "a" * 5000 + "]"]}, 400, "max_sentence_bytes=4096"),
    ],
)
def test_error_messages(client, content, status, words):
    response = client.post(PREDICT, json=content)
    assert (response.status_code, list(response.json())) == (status, ["error"])
    assert words in response.json()["error"]


def test_documents_cannot_be_streamed(client):
    response = client.post("/v1/models/shouting:stream", json={"markup": "brackets", "inputs": ["[a]"]})
    assert response.status_code == 400 and "documents with markup cannot be streamed" in response.json()["error"]
