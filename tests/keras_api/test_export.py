"""`export` writes the call, for any batch and lengths, in formats that need nothing of this project."""

import pathlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import layers
from t2t_keras.models.families import make_model
from tests.keras_api.promises import promise
from tests.keras_api.small_models import VOCAB, array, classifier, token_ids
from tests.training.tiny_families import TINY, tiny_family

pytestmark = pytest.mark.integration

PAIRS = [
    {"source": token_ids(*source), "target": token_ids(*target)}
    for source, target in (((4, 7), (4, 5)), ((2, 3), (2, 9)))
]
TEXTS = [{"tokens": token_ids(4, 7)}, {"tokens": token_ids(2, 19)}]
VARIANTS: dict[str, dict[str, Any]] = {
    "pre": {"norm_position": "pre", "position_encoding": "learned", "max_positions": 10, "activation": "swish"},
    "window": {"attention_window": 2, "position_encoding": "sinusoidal_halves"},
    "gelu": {"activation": "gelu"},
    "additive": {"attention_score": "additive"},
    "experts": {"num_experts": 4, "experts_per_token": 2, "d_expert": 8},
}


def tagger() -> keras.Model:
    """A label for each token, from a window around it."""
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    x = layers.SinusoidalPositions()(layers.TiedEmbedding(VOCAB, 16)(tokens))
    x = layers.Encoder(2, num_heads=2, d_ff=24, norm_position="pre", attention_window=2)(x, layers.padding_mask(tokens))
    return keras.Model({"tokens": tokens}, keras.layers.Dense(3)(x))


def made(name: str) -> tuple[keras.Model, list[dict[str, np.ndarray]]]:
    """A model, and inputs of two shapes."""
    keras.utils.set_random_seed(1)
    if name in ("classifier", "tagger"):
        return (classifier if name == "classifier" else tagger)(), TEXTS
    config = tiny_family(name, vocab_size=VOCAB) if name in TINY else tiny_family("transformer", **VARIANTS[name])
    return make_model(config), PAIRS


def saved_model(path: pathlib.Path) -> Callable[[dict[str, np.ndarray]], Any]:
    loaded = tf.saved_model.load(str(path))
    return lambda inputs: loaded.serve(inputs)  # which keeps the variables alive


def litert(path: pathlib.Path) -> Callable[[dict[str, np.ndarray]], Any]:
    interpreter = pytest.importorskip(
        "ai_edge_litert.interpreter", reason="ai-edge-litert comes with the extra convert"
    )
    run = interpreter.Interpreter(model_path=str(path)).get_signature_runner()
    return lambda inputs: next(iter(run(**inputs).values()))


def onnx(path: pathlib.Path) -> Callable[[dict[str, np.ndarray]], Any]:
    session = pytest.importorskip("onnxruntime").InferenceSession(str(path))
    names = [each.name for each in session.get_inputs()]

    def run(inputs: dict[str, np.ndarray]) -> Any:
        return session.run(None, {name: inputs[name.rpartition("inputs_")[2]] for name in names})[0]

    return run


FORMATS = {"tf_saved_model": ("", saved_model), "litert": (".tflite", litert), "onnx": (".onnx", onnx)}
TRANSFORMERS = ("transformer", "pre", "window", "classifier", "tagger")


def check(name: str, format: str, folder: pathlib.Path) -> None:
    model, inputs = made(name)
    suffix, load = FORMATS[format]
    path = folder / f"model{suffix}"
    expected = [array(model(each)) for each in inputs]
    model.export(path, format=format, verbose=False)
    run = load(path)
    for each, outputs in zip(inputs, expected, strict=True):
        np.testing.assert_allclose(array(run(each)), outputs, atol=1e-5)


@promise('`export(format="tf_saved_model")`', jax="not tested", torch="no")
@pytest.mark.parametrize("name", [*TINY, "pre", "window", "gelu", "additive", "experts", "classifier", "tagger"])
def test_a_saved_model_is_the_call(name, tmp_path):
    check(name, "tf_saved_model", tmp_path)


@promise('`export(format="litert")`', jax="no", torch="not tested")
@pytest.mark.parametrize("name", [*TRANSFORMERS, "gelu", "bytenet", "conv_s2s"])
def test_a_litert_file_is_the_call(name, tmp_path):
    check(name, "litert", tmp_path)


@promise('`export(format="litert")`', jax="no", torch="not tested")
@pytest.mark.parametrize(
    ("name", "operation"),
    [("experts", "UpperBound"), ("additive", "TensorListReserve"), ("rnn_attention", "TensorListReserve")],
)
def test_what_litert_lacks_is_refused(name, operation, tmp_path):
    model, _ = made(name)
    with pytest.raises(ValueError, match=rf"model.tflite: LiteRT lacks operations of this model, .*{operation}"):
        model.export(tmp_path / "model.tflite", format="litert", verbose=False)
    assert not list(tmp_path.iterdir())


@promise('`export(format="litert")`', jax="no", torch="not tested")
def test_operations_of_tensorflow_may_be_kept(tmp_path):
    model, _ = made("experts")
    supported = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
    model.export(tmp_path / "model.tflite", format="litert", verbose=False, target_spec={"supported_ops": supported})
    assert (tmp_path / "model.tflite").stat().st_size > 1000  # this TensorFlow's interpreter has no Flex delegate


@promise('`export(format="onnx")`', jax="not tested", torch="not tested")
@pytest.mark.parametrize("name", [*TRANSFORMERS, "additive", "bytenet", "conv_s2s"])
def test_an_onnx_file_is_the_call(name, tmp_path):
    pytest.importorskip("tf2onnx", reason="tf2onnx comes with the extra convert")
    check(name, "onnx", tmp_path)


@promise('`export(format="onnx")`', jax="not tested", torch="not tested")
@pytest.mark.parametrize(
    ("name", "operation"), [("gelu", "Erfc"), ("experts", "UpperBound"), ("rnn_attention", "Bitcast")]
)
def test_what_onnx_lacks_is_refused(name, operation, tmp_path):
    pytest.importorskip("tf2onnx", reason="tf2onnx comes with the extra convert")
    model, _ = made(name)
    with pytest.raises(ValueError, match=rf"model.onnx: .*{operation}.*; use launch.convert --to=onnx"):
        model.export(tmp_path / "model.onnx", format="onnx", verbose=False)
    assert not list(tmp_path.iterdir())
