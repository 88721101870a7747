"""Glossaries over REST: the server translates token ids, and repeats the call if a required term is missing."""

import concurrent.futures
import json
import pathlib

import httpx
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.serving.http.glossed import GlossaryField
from t2t_keras.serving.http.marked import MarkupField
from t2t_keras.serving.options import Limits, ServingOptions
from t2t_keras.serving.server import Server
from tests.serving.rest_calls import metric

PREDICT = "/v1/models/adding:predict"
IDS = [tf.TensorSpec([None, None], tf.int32, "source_ids"), tf.TensorSpec([None], tf.int32, "source_length")]


class Adding(tf.Module):
    """Increments one-digit numbers; constraints replace the result by their first token."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def translate(self, text):
        return {"translation": text, "score": tf.zeros(tf.shape(text))}

    @tf.function(input_signature=IDS)
    def tokens(self, source_ids, source_length):
        return self._answer(source_ids + 1, source_length)

    @tf.function(input_signature=[*IDS, tf.TensorSpec([None, None, None, None], tf.int32, "constraints")])
    def constrained(self, source_ids, source_length, constraints):
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(constraints < 9), ["no such number"])]):
            return self._answer(source_ids * 0 + constraints[:, 0, :, 0], source_length)

    def _answer(self, ids, length):
        score = tf.cast(tf.reduce_sum(ids, axis=1), tf.float32)
        return {"translation_ids": ids, "translation_length": length, "score": score}


class NumberReader:
    """Reads texts of one digit each; a glossary entry maps a digit to its replacement."""

    def __init__(self, texts, pairs, most_rows):
        if "x" in texts:
            raise InputError("x" * 5000)
        self._replacements = dict(pairs)
        self._texts = texts
        self.first = [("tokens", self._inputs(text)) for text in texts]

    def _inputs(self, text, **more):
        return {"source_ids": np.array([[int(text)]], np.int32), "source_length": np.array([1], np.int32), **more}

    def again(self, outputs):
        self._plain = outputs
        self._rows = [row for row, text in enumerate(self._texts) if text in self._replacements]
        digits = [self._replacements[self._texts[row]] for row in self._rows]
        return [
            ("constrained", self._inputs(self._texts[row], constraints=np.array([[[[int(digit)]]]], np.int32)))
            for row, digit in zip(self._rows, digits, strict=True)
        ]

    def answer(self, outputs):
        results = {**dict(enumerate(self._plain)), **dict(zip(self._rows, outputs, strict=True))}
        rows = [str(results[row]["translation_ids"][0, 0]).encode() for row in range(len(self._texts))]
        return {"translation": np.array(rows, object), "score": np.array([results[row]["score"][0] for row in results])}


def save_model(folder, *without):
    model = Adding()
    functions = {"serving_default": model.translate, "tokens": model.tokens, "constrained": model.constrained}
    selected = {name: function for name, function in functions.items() if name not in without}
    tf.saved_model.save(model, str(folder / "1"), signatures=selected)
    return folder


@pytest.fixture(scope="module")
def versions():
    """The versions for which the server created a reader."""
    return []


@pytest.fixture(scope="module")
def client(tmp_path_factory, versions):
    options = ServingOptions(
        str(save_model(tmp_path_factory.mktemp("adding"))),
        name="adding",
        rest_port=0,
        grpc_port=0,
        limits=Limits(max_sentences=20),
        max_batch_bytes=200,
    )

    def reader(version: pathlib.Path):
        versions.append(version.name)
        return NumberReader

    server = Server(options, fields=[MarkupField(None), GlossaryField(reader)])
    server.start()
    with httpx.Client(base_url=f"http://{server.rest_address}", timeout=300) as client:
        yield client
    assert server.stop()


def test_texts_without_a_required_term_are_translated_again(client, versions):
    content = {"glossary": [["3", "7"], ["5", "5"]], "inputs": {"text": ["1", "3", "5"]}}
    expected = {"translation": ["2", "7", "5"], "score": [2.0, 7.0, 5.0]}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        responses = list(pool.map(lambda _: client.post(PREDICT, json=content), range(16)))
    assert all(response.json() == {"outputs": expected} for response in responses)
    response = client.post(PREDICT, json={"glossary": [], "instances": ["1", "3"]})
    assert response.json()["predictions"] == [{"translation": "2", "score": 2.0}, {"translation": "4", "score": 4.0}]
    escaped = json.dumps(content).replace("glossary", "gloss\\u0061ry")
    assert client.post(PREDICT, content=escaped.encode()).json() == {"outputs": expected}
    assert versions == ["1"]
    assert metric(client, 't2t_serving_requests_total{interface="rest",outcome="OK",signature="glossary"}')


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"glossary": {"a": "b"}}, """'glossary' must be a list of [term, forms], got {"a": "b"}"""),
        ({"glossary": [["1", "2"], ["3"]]}, "glossary, entry 2: expected a term and its forms, two strings, got"),
        ({"glossary": [["1", 2]]}, "glossary, entry 1: expected a term and its forms"),
        ({"glossary": ["12"]}, """glossary, entry 1: expected a term and its forms, two strings, got "12\""""),
        ({"glossary": [["1", "2"]] * 21}, "21 terms in a glossary: the limit is max_sentences=20"),
        ({"glossary": [["1", "2" * 200]]}, "texts and a glossary of 202 bytes: the limit is max_batch_bytes=200"),
        ({"glossary": [["\ud800", "\ud800" * 66]], "inputs": ["1" * 134]}, "of 201 bytes"),
        ({"glossary": [], "inputs": []}, "the request is empty"),
        ({"glossary": [], "inputs": ["1"] * 21}, "21 sentences in a request"),
        ({"glossary": [], "inputs": [["1"]]}, "nested too deep: the limit is 1"),
        ({"glossary": [["1", "9"]]}, "no such number"),
        ({"glossary": [], "inputs": ["x"]}, "x" * 500),
        ({"glossary": [], "markup": "html"}, "a glossary cannot be combined with markup"),
        ({"glossary": [], "signature_name": "tokens"}, "only 'serving_default' supports glossaries"),
    ],
)
def test_error_messages(client, content, words):
    response = client.post(PREDICT, content=json.dumps({"inputs": ["1"], **content}).encode())
    assert (response.status_code, list(response.json())) == (400, ["error"])
    assert words in response.json()["error"] and len(response.json()["error"]) <= 603


def test_glossaries_cannot_be_streamed(client):
    response = client.post("/v1/models/adding:stream", json={"glossary": [], "inputs": ["1"]})
    assert response.status_code == 400 and "glossary cannot be streamed" in response.json()["error"]
