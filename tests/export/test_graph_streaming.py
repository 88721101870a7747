"""A streamed translation in the graph ends with the result of a whole search."""

import dataclasses
import functools

import httpx
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.export.exported_weights import Weights
from t2t_keras.export.graph_pipeline import Pipeline
from t2t_keras.export.signatures import signatures
from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.server import Server
from tests.export import exporting
from tests.export.exporting import LINES, TEXTS
from tests.serving.rest_calls import predict, read_events

pytestmark = pytest.mark.integration


@functools.cache
def stream_functions(**settings):
    translator = exporting.translator(dataclasses.replace(exporting.DECODE, **settings))
    pipeline = Pipeline(translator, Weights(translator.model), (translator.tokenizer.graph_tokenizer(),) * 2)
    return signatures(pipeline)


def stream(functions, text: bytes, steps: int) -> list[dict]:
    """Returns the outputs of each call without the state."""
    state = functions["stream_begin"](tf.constant([text]))
    results: list[dict] = []
    while not (results and results[-1]["done"]):
        outputs = functions["stream_advance"](tf.constant(steps), *state.values())
        state = {name: outputs.pop(name) for name in state}
        results.append(outputs)
    return results


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"beam_size": 4}, id="beam"),
        pytest.param({"beam_size": 1}, id="greedy"),
        pytest.param({"beam_size": 4, "max_length_offset": 1, "max_length_factor": 0.5, "min_length": 2}, id="limits"),
    ],
)
def test_the_last_output_equals_the_translation(settings):
    functions, changes = stream_functions(**settings), 0
    for text in TEXTS:
        expected = functions["serving_default"](tf.constant([text]))
        texts = []
        for steps in (1, 3, 1000):
            *before, last = stream(functions, text, steps)
            np.testing.assert_array_equal(last["translation"], expected["translation"])
            np.testing.assert_allclose(last["score"], expected["score"], rtol=1e-5)
            assert not any(outputs["done"] for outputs in before)
            texts.append([outputs["translation"].numpy()[0] for outputs in (*before, last)])
        assert texts[0][2::3] == texts[1][: len(texts[0]) // 3], "outputs differ after the same number of steps"
        assert len(texts[2]) == 1
        changes += len(set(texts[0]))
    assert changes > 5 * len(TEXTS)


def test_parts_are_streamed_one_after_another():
    functions = stream_functions(beam_size=1)
    (text,) = [text for text in TEXTS if text.startswith(b"Two dogs play. Two")]
    expected = functions["serving_default"](tf.constant([text]))["translation"][0].numpy()
    streamed = [outputs["translation"][0].numpy() for outputs in stream(functions, text, 1)]
    assert len(streamed[-1]) > len(streamed[0])
    assert streamed[-1] == expected


def test_blank_and_long_texts():
    functions = stream_functions(beam_size=1)
    (only,) = stream(functions, b" ", 1)
    assert only["translation"].numpy().tolist() == [b""]
    with pytest.raises(tf.errors.InvalidArgumentError, match="more than 1024 tokens.*too long to be streamed"):
        functions["stream_begin"](tf.constant([exporting.TOO_LONG]))


def test_sampling_exports_have_no_streaming_signatures():
    names = set(stream_functions(sampling=True, beam_size=1))
    assert "sample" in names
    assert not any(name.startswith("stream") for name in names)


def test_a_server_streams_the_same_translation(version):
    server = Server(ServingOptions(str(version.parent), rest_port=0, grpc_port=0))
    server.start()
    try:
        with httpx.Client(base_url=f"http://{server.rest_address}", timeout=300) as client:
            for line in [*LINES[:3], "", "Two dogs play. " * 12]:
                body = {"instances": [line]}
                *before, (name, last) = read_events(client, body, "/v1/models/tiny")
                assert name == "end"
                assert all(name == "" for name, _ in before)
                (actual,), (expected,) = (
                    data["predictions"] for data in (last, predict(client, body, "/v1/models/tiny").json())
                )
                assert actual["translation"] == expected["translation"]
                assert actual["score"] == pytest.approx(expected["score"], rel=1e-5)
                assert len(before) > 3 or not line
    finally:
        assert server.stop()
