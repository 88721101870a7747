"""An engine that replaces the graph for some signatures."""

import httpx
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.request_errors import Code, ServingError
from t2t_keras.serving.served_models import Loader, Model
from t2t_keras.serving.server import Server
from tests.waiting import wait_until


class ShoutingEngine:
    """Replaces `serving_default`, and records the versions."""

    def __init__(self):
        self.versions = []

    def __call__(self, path):
        self.versions.append(path.name)
        return {"serving_default": self.shout, "unknown": None}

    def shout(self, text):
        return {"translation": tf.strings.join([text, "!"]), "score": tf.zeros(tf.shape(text))}


def refuse(path):
    raise InputError("the engine ctranslate2 does not support this; use --engine=tensorflow")


def test_substitutes_replace_their_signatures(export_dir):
    graph, model = Model(export_dir / "1", 1), Model(export_dir / "1", 1, ShoutingEngine())
    assert model.signature_defs == graph.signature_defs and set(model.signatures) == set(graph.signatures)
    for name in graph.signatures:
        assert model.signature(name).inputs == graph.signature(name).inputs
        assert model.signature(name).outputs == graph.signature(name).outputs
    inputs = {"text": np.array([b"ab"], object)}
    assert model.signature("").run(inputs)["translation"].tolist() == [b"ab!"]
    assert graph.signature("").run(inputs)["translation"].tolist() == [b"BA"]
    assert model.signature("single").run(inputs)["version"].tolist() == [1]


def test_versions_that_the_engine_rejects_are_not_loaded(export_dir):
    with pytest.raises(ServingError, match="does not support this; use --engine=tensorflow") as caught:
        Model(export_dir / "1", 1, refuse)
    assert caught.value.code is Code.FAILED_PRECONDITION


def test_unsupported_version_at_the_start(export_dir, caplog):
    server = Server(ServingOptions(str(export_dir), rest_port=0, grpc_port=0), loader=Loader(refuse))
    with pytest.raises(InputError, match="^toy: the engine ctranslate2 does not support this"):
        server.start()
    assert "next attempt when its files change" in caplog.text


def test_unsupported_later_version_does_not_replace_the_served_one(versions_1_and_2, export_dir):
    engine = ShoutingEngine()

    def substitutes(path):
        return engine(path) if path.name == "1" else refuse(path)

    server = Server(
        ServingOptions(str(export_dir), rest_port=0, grpc_port=0, poll_seconds=0.05), loader=Loader(substitutes)
    )
    server.start()
    try:
        (export_dir / "2").symlink_to(versions_1_and_2 / "2")
        wait_until(lambda: [status.state for status in server.core.models.first.statuses()] == ["END", "AVAILABLE"])
        url = f"http://{server.rest_address}/v1/models/toy:predict"
        shout = httpx.post(url, json={"instances": ["ab"]}, timeout=300).json()
        assert shout == {"predictions": [{"translation": "ab!", "score": 0.0}]}
    finally:
        assert server.stop()
