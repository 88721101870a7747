"""Protected spans over REST and gRPC: texts are translated without their spans, and again if necessary."""

import json
import shutil
from typing import get_args, get_type_hints

import grpc
import httpx
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import model_pb2, predict_pb2, prediction_service_pb2_grpc

from t2t_keras.config import DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.serving.http.glossed import GlossaryField
from t2t_keras.serving.http.marked import MarkupField
from t2t_keras.serving.http.protected import ProtectionField, protect
from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.server import Server
from t2t_keras.serving.version_readers import VersionReaders
from t2t_keras.text.protection.spans import KINDS

MODEL = "/v1/models/upper"


class Upper(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def translate(self, text):
        return {"translation": tf.strings.upper(text), "score": tf.zeros(tf.shape(text))}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def nbest(self, text):
        return {"translations": tf.strings.upper(text)[:, tf.newaxis]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def align(self, text):
        return {"translation": tf.strings.upper(text)}


class StarProtection:
    """Removes stars from texts and appends them to translations; texts with a plus need a second call."""

    def __init__(self, texts, mark, signature):
        self._texts, self._mark, self._signature = texts, mark, signature
        self.first = [(signature, self._inputs(texts))]

    def _inputs(self, texts):
        return {"text": np.array([text.replace("*", "").encode() for text in texts], object)}

    def again(self, outputs):
        self._outputs = list(outputs)
        again = [text for text in self._texts if "+" in text]
        return [(self._signature, self._inputs([text.replace("+", "p") for text in again]))] if again else []

    def answer(self, outputs):
        name = "translations" if self._signature == "nbest" else "translation"
        rows = [row.decode() for row in self._outputs[0][name].reshape(-1)]
        second_rows = iter([row.decode() for one in outputs for row in one[name].reshape(-1)])
        rows = [next(second_rows) if "+" in text else row for row, text in zip(rows, self._texts, strict=True)]
        texts = [row + self._mark * text.count("*") for row, text in zip(rows, self._texts, strict=True)]
        return {
            "translation": np.array([text.encode() for text in texts], object),
            "score": np.zeros(len(texts), np.float32),
            "unknown_characters": np.array([[b"*" * text.count("*")] for text in self._texts], object),
        }

    def aligned(self, outputs):
        return [text.decode() for text in self.answer(outputs)["translation"]]


class Documents:
    """Splits documents at vertical bars, their only markup."""

    def __init__(self, markup, documents, attributes):
        self._parts = [document.split("|") for document in documents]
        self.texts = [part for parts in self._parts for part in parts]

    def filled(self, outputs):
        texts = iter([each if isinstance(each, str) else each["translation"][0].decode() for each in outputs])
        return ["|".join(next(texts) for _ in parts) for parts in self._parts]


def find(inputs, fields, signature, aligns, groups, tag=""):
    if "protect" in fields and fields["protect"] != ["stars"]:
        raise InputError("'protect' must be stars")
    texts = [text.decode() for text in inputs["text"]]
    return StarProtection(texts, "#" if fields else "*", signature) if any("*" in text for text in texts) else None


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("upper")
    model = Upper()
    signatures = {"serving_default": model.translate, "nbest": model.nbest, "align": model.align}
    tf.saved_model.save(model, str(folder / "1"), signatures)
    config = {"data": {"source_language": "en", "target_language": "de", "task": "translation"}}
    (folder / "1" / "assets.extra").mkdir()
    (folder / "1" / "assets.extra" / "config.json").write_text(json.dumps(config))
    protections = VersionReaders(lambda _: find)
    server = Server(
        ServingOptions(str(folder), name="upper", rest_port=0, grpc_port=0),
        fields=[MarkupField(Documents, protections), GlossaryField(lambda _: None), ProtectionField(protections)],
    )
    server.start()
    yield server
    assert server.stop()


def test_texts_without_spans_are_unchanged(client):
    response = client.post(f"{MODEL}:predict", json={"instances": ["a", "b"]}).json()
    assert response == {"predictions": [{"translation": "A", "score": 0.0}, {"translation": "B", "score": 0.0}]}


def test_spans_are_put_back(client):
    content = {"inputs": {"text": ["a*", "b+*", "c"]}}
    expected = {"translation": ["A*", "BP*", "C"], "score": [0.0] * 3, "unknown_characters": [["*"], ["*"], [""]]}
    for _ in range(2):
        assert client.post(f"{MODEL}:predict", json=content).json() == {"outputs": expected}
    content["protect"] = ["stars"]
    assert client.post(f"{MODEL}:predict", json=content).json()["outputs"]["translation"] == ["A#", "BP#", "C"]


def test_texts_with_spans_are_streamed_in_one_event(client):
    response = client.post(f"{MODEL}:stream", json={"instances": ["a*"]})
    (event,) = response.text.strip().split("\n\n")
    name, data = event.split("\n")
    assert name == "event: end"
    assert json.loads(data.removeprefix("data: "))["predictions"][0]["translation"] == "A*"


def test_streams_of_several_texts_are_rejected(client):
    response = client.post(f"{MODEL}:stream", json={"instances": ["a*", "b"]})
    assert response.status_code == 501  # as without spans, because the model does not stream


def test_spans_of_documents_are_put_back(client):
    content = {"markup": "html", "instances": ["a|b", "c"]}
    for text, fields, expected in [("a*", {}, "A*"), ("+*", {}, "P*"), ("a*", {"protect": ["stars"]}, "A#")]:
        content["instances"][0] = f"{text}|b"
        response = client.post(f"{MODEL}:predict", json={**content, **fields})
        assert response.json() == {"predictions": [f"{expected}|B", "C"]}
    assert client.post(f"{MODEL}:predict", json={**content, "instances": ["a|b"]}).json() == {"predictions": ["A|B"]}


def test_libretranslate_protects_spans(client):
    content = {"q": ["a*", "b+*", "c"], "source": "en", "target": "de"}
    assert client.post("/translate", json=content).json() == {"translatedText": ["A*", "BP*", "C"]}
    content |= {"q": "a*|b", "format": "html"}
    assert client.post("/translate", json=content).json() == {"translatedText": "A*|B"}


def test_openapi_documents_the_fields(client):
    properties = client.get("/openapi.json").json()["components"]["schemas"]["Request"]["properties"]
    assert properties["protect"]["items"]["enum"] == list(KINDS)
    assert properties["case"]["enum"] == list(get_args(get_type_hints(DecodeConfig)["case"]))
    assert not any("only for predict" in properties[name]["description"] for name in ("protect", "case"))
    assert "only for predict" in properties["markup_attributes"]["description"]


def test_other_signatures_of_translations_are_protected(client):
    content = {"signature_name": "nbest", "inputs": {"text": ["a*", "b"]}}
    assert client.post(f"{MODEL}:predict", json=content).json()["outputs"]["translation"] == ["A*", "B"]


def test_grpc_protects_spans(server):
    request = predict_pb2.PredictRequest(model_spec=model_pb2.ModelSpec(name="upper"))
    request.inputs["text"].CopyFrom(tf.make_tensor_proto(["a*", "b"]))
    with grpc.insecure_channel(server.grpc_address) as channel:
        outputs = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=300).outputs
    assert tf.make_ndarray(outputs["translation"]).tolist() == [b"A*", b"B"]
    assert tf.make_ndarray(outputs["unknown_characters"]).tolist() == [[b"*"], [b""]]


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        ({"protect": ["x"], "instances": ["a*"]}, 400, "'protect' must be stars"),
        ({"protect": ["stars"], "instances": ["a"], "signature_name": "align"}, 501, "'protect' is supported only for"),
        ({"case": "fallback", "instances": ["a"], "signature_name": "align"}, 501, "'case' is supported only for"),
        (
            {"glossary": [], "protect": ["stars"], "instances": ["a"]},
            400,
            "'protect' cannot be combined with glossaries",
        ),
        ({"markup": "html", "protect": ["x"], "instances": ["a*"]}, 400, "'protect' must be stars"),
        ({"markup_attributes": ["alt"], "protect": ["stars"], "instances": ["a"]}, 400, "requires 'markup'"),
        ({"instances": [["a*"]]}, 400, "nested too deep"),
    ],
)
def test_error_messages(client, content, status, words):
    response = client.post(f"{MODEL}:predict", json=content)
    assert response.status_code == status and words in response.json()["error"]


def test_version_with_unreadable_settings_translates_without_protection(caplog):
    class Call:
        """A request for a version of a later release, with some fields."""

        def __init__(self, **fields):
            self.fields, self.model = fields, self
            self.is_as_loaded, self.path, self.version = True, None, 3

        def present(self, names):
            return self.fields

    def fail(version):
        raise InputError("unknown setting data.later")

    protections = VersionReaders(fail)
    assert protect(Call(), protections, "serving_default", {}) is None
    assert caplog.messages == ["version 3: unknown setting data.later"]
    with pytest.raises(InputError, match=r"unknown setting data\.later"):
        protect(Call(protect=["urls"]), protections, "serving_default", {})


def test_version_with_deleted_files_translates_without_protection(tmp_path):
    model = Upper()
    tf.saved_model.save(model, str(tmp_path / "1"), {"serving_default": model.translate})
    options = ServingOptions(str(tmp_path), name="upper", rest_port=0, grpc_port=0, poll_seconds=1000)
    server = Server(options, fields=[ProtectionField(VersionReaders(lambda _: find))])
    server.start()
    try:
        shutil.rmtree(tmp_path / "1")
        url = f"http://{server.rest_address}{MODEL}:predict"
        response = httpx.post(url, json={"instances": ["a*"]}, timeout=300)
        assert response.json()["predictions"][0]["translation"] == "A*"
        response = httpx.post(url, json={"instances": ["a*"], "protect": ["stars"]}, timeout=300)
        assert response.status_code == 503
    finally:
        assert server.stop()
