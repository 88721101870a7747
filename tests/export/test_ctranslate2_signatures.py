"""Exports that CTranslate2 serves: the signatures, and a server of them."""

import json
import sys

import grpc
import httpx
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from t2t_keras.errors import InputError
from t2t_keras.export.ctranslate2_signatures import CTranslate2Signatures
from t2t_keras.inference.translator import Translator
from t2t_keras.inference.translator_settings import TranslatorSettings
from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.served_models import Loader
from t2t_keras.serving.server import Server
from tests.export import exporting

needs_ctranslate2 = pytest.mark.skipif("not __import__('importlib.util').util.find_spec('ctranslate2')")
LINES = [text.decode("utf-8", "replace") for text in exporting.TEXTS]


@pytest.fixture(scope="module")
def expected(version):
    """The outputs of `launch.translate --engine=ctranslate2 --num_best=3` for the export."""
    return Translator.load(version, settings=TranslatorSettings(engine="ctranslate2")).translate_nbest(
        LINES, exporting.DECODE.beam_size
    )


@pytest.fixture(scope="module")
def functions(version):
    return CTranslate2Signatures("float32")(version)


@needs_ctranslate2
@pytest.mark.integration
def test_the_outputs_equal_those_of_the_translator(version, functions, expected):
    text = tf.constant(exporting.TEXTS)
    outputs = {name: array.numpy() for name, array in functions["nbest"](text=text).items()}
    missing = [("", float(tf.float32.min))]
    for row, scores, nbest in zip(outputs["translations"], outputs["scores"], expected, strict=True):
        pairs = [(translation.text, translation.score) for translation in nbest] + missing * (
            exporting.DECODE.beam_size - len(nbest)
        )
        assert [text.decode() for text in row] == [text for text, _ in pairs]
        assert scores.tolist() == pytest.approx([score for _, score in pairs], abs=1e-5)
    best = Translator.load(version, settings=TranslatorSettings(engine="ctranslate2")).translate(LINES)
    outputs = functions["serving_default"](text=text)
    assert [text.decode() for text in outputs["translation"].numpy()] == [translation.text for translation in best]
    assert outputs["score"].numpy().tolist() == pytest.approx([translation.score for translation in best], abs=1e-5)


@needs_ctranslate2
@pytest.mark.integration
def test_a_server_answers_over_rest_and_grpc(version, functions, expected):
    server = Server(
        ServingOptions(str(version.parent), rest_port=0, grpc_port=0), loader=Loader(lambda path: functions)
    )
    server.start()
    try:
        url = f"http://{server.rest_address}/v1/models/tiny"
        body = {"signature_name": "nbest", "inputs": LINES}
        outputs = httpx.post(f"{url}:predict", json=body, timeout=300).json()["outputs"]
        metadata = httpx.get(f"{url}/metadata", timeout=300).json()["metadata"]["signature_def"]["signature_def"]
        scored = httpx.post(
            f"{url}:predict", json={"signature_name": "score", "inputs": {"text": ["A"], "target": ["B"]}}, timeout=300
        )
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "tiny"
        request.inputs["text"].CopyFrom(tf.make_tensor_proto(exporting.TEXTS))
        with grpc.insecure_channel(server.grpc_address) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            translations = tf.make_ndarray(stub.Predict(request, timeout=300).outputs["translation"])
    finally:
        assert server.stop()
    assert [row[0] for row in outputs["translations"]] == [nbest[0].text for nbest in expected]
    assert [text.decode() for text in translations] == [nbest[0].text for nbest in expected]
    assert metadata["nbest"]["outputs"]["scores"]["tensor_shape"]["dim"][1]["size"] == "3"
    assert scored.status_code == 200  # computed by the graph


@needs_ctranslate2
@pytest.mark.integration
def test_unsupported_search_settings_are_rejected(version, tmp_path):
    signatures = CTranslate2Signatures("float32")
    with pytest.raises(InputError, match="config.json, so the engine ctranslate2 cannot read it; use --engine=tenso"):
        signatures(tmp_path)
    for setting, value in (("coverage_penalty", 0.2), ("sampling", True)):
        folder = tmp_path / setting
        folder.mkdir()
        for entry in version.iterdir():
            (folder / entry.name).symlink_to(entry)
        (folder / "assets.extra").unlink()
        (folder / "assets.extra").mkdir()
        config = json.loads((version / "assets.extra" / "config.json").read_text(encoding="utf-8"))
        config["decode"][setting] = value
        (folder / "assets.extra" / "config.json").write_text(json.dumps(config), encoding="utf-8")
        with pytest.raises(InputError, match=f"decode.{setting}={value}.*; use --engine=tensorflow$"):
            signatures(folder)


def test_a_missing_package_is_reported_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(InputError, match=r"^the package ctranslate2 is missing: pip install '\.\[fast\]'$"):
        CTranslate2Signatures("float32")
