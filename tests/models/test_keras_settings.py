"""The settings of keras.json do not change the results of a run."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest

from t2t_keras.models.families import make_model
from t2t_keras.models.transformer import Transformer
from tests.programs import ROOT
from tests.training.tiny_families import TINY, tiny_family
from tests.training.tiny_training import assert_same_end, make_data, train

GOLDEN = ROOT / "tests" / "golden" / "run"
TEXTS = ["cat", "the the the dog dog", "the dog sees the cat"]
ODD = {"floatx": "float16", "epsilon": 0.01, "image_data_format": "channels_first"}


@contextlib.contextmanager
def odd_settings() -> Iterator[None]:
    floatx, policy = keras.config.floatx(), keras.config.dtype_policy()
    image_data_format, epsilon = keras.config.image_data_format(), keras.config.epsilon()
    keras.config.set_floatx(ODD["floatx"])
    keras.config.set_dtype_policy(ODD["floatx"])  # which is the default that Keras has by that floatx
    keras.config.set_image_data_format(ODD["image_data_format"])
    keras.config.set_epsilon(ODD["epsilon"])
    try:
        yield
    finally:
        keras.config.set_floatx(floatx)
        keras.config.set_dtype_policy(policy)
        keras.config.set_image_data_format(image_data_format)
        keras.config.set_epsilon(epsilon)


def logits_of(family: str) -> np.ndarray:
    keras.utils.set_random_seed(1)
    model = make_model(tiny_family(family))
    assert {weight.dtype for weight in model.trainable_variables} == {"float32"}
    ids = np.array([[5, 6, 7, 1, 0], [8, 9, 1, 0, 0]], np.int32)
    inputs = {"source": ids, "target": ids[:, ::-1].copy()}
    return keras.ops.convert_to_numpy(model.logits(model.states(inputs).hidden))


@pytest.mark.quick("transformer")
@pytest.mark.parametrize("family", TINY)
def test_models_of_runs_compute_in_float32_whatever_keras_is_set_to(family):
    expected = logits_of(family)
    with odd_settings():
        found = logits_of(family)
        assert keras.config.floatx() == keras.config.dtype_policy().name == ODD["floatx"]
    np.testing.assert_array_equal(found, expected)


def test_what_a_user_makes_is_as_keras_is_set_to():
    with odd_settings():
        model = Transformer(tiny_family("transformer"))
        model.build()
        loaded = Transformer.from_preset(GOLDEN)
    for each in (model, loaded):
        assert each.compute_dtype == "float16" == each.output_head.table.dtype


ELSEWHERE = """
import json, pathlib, sys
import keras
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import saved_model_pb2
from t2t_keras.data.prepare import PreparedData
from t2t_keras.export.writing import export_translator
from t2t_keras.inference.translator import Translator
from t2t_keras.runs.run import Run
from t2t_keras.training.devices.strategy import make_strategy
from tests.training.tiny_training import go_on

golden, data, run, export, texts = json.loads(sys.argv[1])
go_on(Run(run), PreparedData.open(data), 4, make_strategy("cpu", 1))
translator = Translator.load(golden)
found = {"translations": [[each.text, each.score] for each in translator.translate(texts)]}
if export:
    version = export_translator(translator, Run(golden).config, pathlib.Path(export))
    saved = saved_model_pb2.SavedModel.FromString((version / "saved_model.pb").read_bytes())
    graph = saved.meta_graphs[0].graph_def
    nodes = [graph.node, *(function.node_def for function in graph.library.function)]
    values = [value for each in nodes for node in each for value in node.attr.values()]
    found["halves"] = sum(value.type == types_pb2.DT_HALF for value in values)
print(json.dumps({"floatx": keras.config.floatx(), **found}))
"""


def elsewhere(tmp_path: pathlib.Path, name: str, settings: dict[str, Any], *places: str) -> subprocess.Popen:
    """Starts the program with a keras.json of these settings."""
    home = tmp_path / f"home_{name}"
    home.mkdir()
    (home / "keras.json").write_text(json.dumps(settings), encoding="utf-8")
    environment = {**os.environ, "KERAS_HOME": str(home), "PYTHONPATH": str(ROOT), "KERAS_BACKEND": "tensorflow"}
    shutil.copytree(tmp_path / "run", tmp_path / name)
    data, export = places
    arguments = json.dumps([str(GOLDEN), data, str(tmp_path / name), export, TEXTS])
    return subprocess.Popen([sys.executable, "-c", ELSEWHERE, arguments], stdout=subprocess.PIPE, env=environment)


@pytest.mark.integration
def test_keras_json_changes_no_translation_export_or_training(tmp_path: pathlib.Path):
    data = make_data(tmp_path)
    train(tmp_path / "run", data, max_steps=2)
    plain = elsewhere(tmp_path, "plain", {}, str(data.directory), "")
    odd = elsewhere(tmp_path, "odd", ODD, str(data.directory), str(tmp_path / "export"))
    expected, found = (json.loads(process.communicate()[0].splitlines()[-1]) for process in (plain, odd))
    assert (expected.pop("floatx"), found.pop("floatx")) == ("float32", "float16")
    assert found == {**expected, "halves": 0}
    assert_same_end(tmp_path / "odd", tmp_path / "plain", 4)
