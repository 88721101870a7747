"""`export` writes the call, for any batch size and length, in formats that do not need this project."""

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
    """Returns a model that labels each token from a window around it."""
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    x = layers.SinusoidalPositions()(layers.TiedEmbedding(VOCAB, 16)(tokens))
    x = layers.Encoder(2, num_heads=2, d_ff=24, norm_position="pre", attention_window=2)(x, layers.padding_mask(tokens))
    return keras.Model({"tokens": tokens}, keras.layers.Dense(3)(x))


def make_model_and_inputs(name: str) -> tuple[keras.Model, list[dict[str, np.ndarray]]]:
    """Returns a model and inputs of two shapes."""
    keras.utils.set_random_seed(1)
    if name in ("classifier", "tagger"):
        return (classifier if name == "classifier" else tagger)(), TEXTS
    config = tiny_family(name, vocab_size=VOCAB) if name in TINY else tiny_family("transformer", **VARIANTS[name])
    return make_model(config), PAIRS


def load_saved_model(path: pathlib.Path) -> Callable[[dict[str, np.ndarray]], Any]:
    loaded = tf.saved_model.load(str(path))
    return lambda inputs: loaded.serve(inputs)  # keeps the variables alive


def load_litert(path: pathlib.Path) -> Callable[[dict[str, np.ndarray]], Any]:
    interpreter = pytest.importorskip(
        "ai_edge_litert.interpreter", reason="ai-edge-litert comes with the extra convert"
    )
    run = interpreter.Interpreter(model_path=str(path)).get_signature_runner()
    return lambda inputs: next(iter(run(**inputs).values()))


def load_onnx(path: pathlib.Path) -> Callable[[dict[str, np.ndarray]], Any]:
    session = pytest.importorskip("onnxruntime").InferenceSession(str(path))
    names = [output.name for output in session.get_inputs()]

    def run(inputs: dict[str, np.ndarray]) -> Any:
        return session.run(None, {name: inputs[name.rpartition("inputs_")[2]] for name in names})[0]

    return run


FORMATS = {"tf_saved_model": ("", load_saved_model), "litert": (".tflite", load_litert), "onnx": (".onnx", load_onnx)}
TRANSFORMERS = ("transformer", "pre", "window", "classifier", "tagger")


def assert_same_outputs(name: str, format: str, folder: pathlib.Path) -> None:
    model, inputs = make_model_and_inputs(name)
    suffix, load = FORMATS[format]
    path = folder / f"model{suffix}"
    expected = [array(model(inputs_of_shape)) for inputs_of_shape in inputs]
    model.export(path, format=format, verbose=False)
    run = load(path)
    for inputs_of_shape, outputs in zip(inputs, expected, strict=True):
        np.testing.assert_allclose(array(run(inputs_of_shape)), outputs, atol=1e-5)


@promise('`export(format="tf_saved_model")`', jax="not tested", torch="no")
@pytest.mark.parametrize("name", [*TINY, "pre", "window", "gelu", "additive", "experts", "classifier", "tagger"])
def test_a_saved_model_computes_the_call(name, tmp_path):
    assert_same_outputs(name, "tf_saved_model", tmp_path)


@promise('`export(format="litert")`', jax="no", torch="not tested")
@pytest.mark.parametrize("name", [*TRANSFORMERS, "gelu", "bytenet", "conv_s2s"])
def test_a_litert_file_computes_the_call(name, tmp_path):
    assert_same_outputs(name, "litert", tmp_path)


@promise('`export(format="litert")`', jax="no", torch="not tested")
@pytest.mark.parametrize(
    ("name", "operation"),
    [("experts", "UpperBound"), ("additive", "TensorListReserve"), ("rnn_attention", "TensorListReserve")],
)
def test_operations_that_litert_lacks_are_rejected(name, operation, tmp_path):
    model, _ = make_model_and_inputs(name)
    with pytest.raises(ValueError, match=rf"model.tflite: LiteRT lacks operations of this model, .*{operation}"):
        model.export(tmp_path / "model.tflite", format="litert", verbose=False)
    assert not list(tmp_path.iterdir())


@promise('`export(format="litert")`', jax="no", torch="not tested")
def test_operations_of_tensorflow_can_be_kept(tmp_path):
    model, _ = make_model_and_inputs("experts")
    supported = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
    model.export(tmp_path / "model.tflite", format="litert", verbose=False, target_spec={"supported_ops": supported})
    assert (tmp_path / "model.tflite").stat().st_size > 1000  # This TensorFlow's interpreter has no Flex delegate.


@promise('`export(format="onnx")`', jax="not tested", torch="not tested")
@pytest.mark.parametrize("name", [*TRANSFORMERS, "additive", "bytenet", "conv_s2s"])
def test_an_onnx_file_computes_the_call(name, tmp_path):
    pytest.importorskip("tf2onnx", reason="tf2onnx comes with the extra convert")
    assert_same_outputs(name, "onnx", tmp_path)


@promise('`export(format="onnx")`', jax="not tested", torch="not tested")
@pytest.mark.parametrize(
    ("name", "operation"), [("gelu", "Erfc"), ("experts", "UpperBound"), ("rnn_attention", "Bitcast")]
)
def test_operations_that_onnx_lacks_are_rejected(name, operation, tmp_path):
    pytest.importorskip("tf2onnx", reason="tf2onnx comes with the extra convert")
    model, _ = make_model_and_inputs(name)
    with pytest.raises(ValueError, match=rf"model.onnx: .*{operation}.*; use launch.convert --to=onnx"):
        model.export(tmp_path / "model.onnx", format="onnx", verbose=False)
    assert not list(tmp_path.iterdir())
