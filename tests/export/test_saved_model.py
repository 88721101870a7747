"""The contents of an export: operations, signatures, weights, assets, warm-up requests and versions."""

import dataclasses
import json
import os
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from t2t_keras.config import Config
from t2t_keras.errors import InputError
from t2t_keras.export.exported_weights import Weights
from t2t_keras.export.writing import export_translator
from t2t_keras.export_contract import SIGNATURES, state_name
from t2t_keras.machine.files import sha256
from t2t_keras.models.transformer import Transformer
from t2t_keras.runs.load import load_model
from t2t_keras.serving.answer_cache import repeatable
from t2t_keras.text.terms import Glossary
from tests.export import exporting

pytestmark = pytest.mark.integration

STREAM = ("stream_begin", "stream_advance")


@pytest.fixture(scope="module")
def meta_graph(version):
    (meta_graph,) = saved_model_pb2.SavedModel.FromString((version / "saved_model.pb").read_bytes()).meta_graphs
    return meta_graph


def test_all_signatures_except_sampling_are_deterministic(meta_graph):
    deterministic = repeatable(meta_graph) & {name for name in meta_graph.signature_def if not name.startswith("__")}
    texts = {"serving_default", "nbest", "score", "align", "attention", "alternatives"}
    assert deterministic == {*texts, "tokens", "constrained", *STREAM}


def test_all_operations_except_three_of_sentencepiece_belong_to_tensorflow(version):
    assert {"Add", "StatefulPartitionedCall"} < {*dir(tf.raw_ops)} and not exporting.SENTENCEPIECE & {*dir(tf.raw_ops)}
    assert exporting.custom_operations(version) == exporting.SENTENCEPIECE


def test_signatures_follow_the_contract(meta_graph):
    signatures = {name: s for name, s in meta_graph.signature_def.items() if not name.startswith("__")}
    assert {*signatures} == {*SIGNATURES}
    assert {s.method_name for s in signatures.values()} == {"tensorflow/serving/predict"}
    for name, signature in signatures.items():
        contract = SIGNATURES[name]
        sides = (
            (signature.inputs, contract.inputs, contract.takes_state),
            (signature.outputs, contract.outputs, contract.returns_state),
        )
        for tensors, expected, has_state in sides:
            state = {state_name(number) for number in range(len(tensors) - len(expected))} if has_state else set()
            assert {*tensors} == {*expected, *state}, name
            for tensor_name, (dtype, axes) in expected.items():
                tensor = tensors[tensor_name]
                assert tf.dtypes.as_dtype(tensor.dtype).name == dtype
                sizes = [axis.size for axis in tensor.tensor_shape.dim]
                expected_sizes = [
                    {"k": 3, "heads": 2}.get(axis, -1) if isinstance(axis, str) else axis for axis in axes
                ]
                assert sizes == expected_sizes, f"{name}: {tensor_name}"


def bytes_of_weights(version: pathlib.Path) -> int:
    return sum(path.stat().st_size for path in (version / "variables").iterdir())


def test_each_weight_is_stored_once_under_its_name(translator, version):
    reader = tf.train.load_checkpoint(str(version / "variables" / "variables"))
    shapes = {key: shape for key, shape in reader.get_variable_to_shape_map().items() if key.startswith("weights/")}
    assert len(shapes) == len(translator.model.trainable_variables)
    assert "weights/decoder.Slayer_1.Sfeed_forward.Sinner_kernel/.ATTRIBUTES/VARIABLE_VALUE" in shapes
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == translator.model.count_params()
    other_keys = {key.partition("/")[0] for key in reader.get_variable_to_shape_map()} - {"weights"}
    assert other_keys <= {"_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter"}


@pytest.mark.parametrize("storage, bytes_each", [("float32", 4), ("bfloat16", 2)])
def test_weights_are_stored_in_the_given_type_and_loaded(tmp_path, storage, bytes_each):
    """The model is large enough that the names of its weights take a negligible share."""
    config = dataclasses.replace(exporting.tiny.transformer().config, d_model=128, d_ff=256)
    model = Transformer(config)
    model.build()
    module = tf.Module()
    module.weights = Weights(model, storage).variables
    tf.saved_model.save(module, str(tmp_path / "1"))
    assert bytes_of_weights(tmp_path / "1") == pytest.approx(bytes_each * model.count_params(), rel=0.05)
    extra = tmp_path / "1" / "assets.extra"
    extra.mkdir()
    (extra / "config.json").write_text(json.dumps(Config(model=config).to_dict()))
    loaded, *_ = load_model(tmp_path)
    for before, after in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(tf.cast(tf.cast(before, storage), tf.float32), after)


def test_frozen_weights_are_exported(tmp_path):
    translator = exporting.translator()
    translator.model.encoder.trainable = False
    frozen = exporting.Translator(translator.tokenizer, translator.model, translator.config)
    export(frozen, tmp_path)
    loaded, *_ = load_model(tmp_path)
    for before, after in zip(translator.model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)


def test_the_export_contains_the_vocabulary_and_its_configuration(translator, version):
    assert {path.name for path in version.iterdir()} >= {"saved_model.pb", "variables", "assets", "assets.extra"}
    assert (version / "assets" / "vocab.model").read_bytes() == translator.tokenizer.serialized
    document = json.loads((version / "assets.extra" / "config.json").read_text())
    assert document["decode"]["beam_size"] == 3
    checkpoints = ["step_00000001", "step_00000002"]
    checksums = document["export"].pop("sha256")
    assert checksums == {name: sha256(version / name) for name in ("saved_model.pb", "assets/vocab.model")}
    assert document["export"] == {"weights": "float32", "excluded": [], "run": "run", "checkpoints": checkpoints}
    assert "data_dir" not in document


def test_warmup_requests_run(served, version, meta_graph):
    requests = exporting.warmup_requests(version)
    assert {name for name, _ in requests} == {n for n in meta_graph.signature_def if not n.startswith("__")}
    for (name, inputs), outputs in zip(requests, served["warmup"], strict=True):
        assert isinstance(outputs, dict), f"{name}: {outputs}"
        if name in STREAM:
            continue
        (size,) = {len(value) for value in inputs.values()}
        assert {len(value) for value in outputs.values()} == {size}


@pytest.fixture
def without_saving(monkeypatch):
    """Makes exports skip the writing of the model."""

    def save(translator, storage, path):
        path.mkdir()
        (path / "saved_model.pb").write_text(storage)
        return {}

    monkeypatch.setattr("t2t_keras.export.writing._save", save)


def export(translator, export_dir: pathlib.Path, *arguments) -> str:
    return export_translator(translator, exporting.config_of(translator), export_dir, *arguments).name


def test_version_numbers_increase(without_saving, translator, tmp_path):
    export_dir = tmp_path / "new" / "mine"
    assert [export(translator, export_dir) for _ in range(3)] == ["1", "2", "3"]
    (export_dir / "2").rename(export_dir / "old_2")
    (export_dir / "17").mkdir()
    (export_dir / "20.tmp").mkdir()
    assert export(translator, export_dir) == "18"
    assert sorted(path.name for path in export_dir.iterdir()) == ["1", "17", "18", "20.tmp", "3", "old_2"]


def test_a_version_created_by_a_concurrent_process_is_not_replaced(without_saving, translator, tmp_path, monkeypatch):
    """An empty directory must stay as well: another process is about to fill it, and os.rename would replace it."""
    rename = os.rename

    def create_and_rename(source, path):
        if path.name == "1" and not path.exists():
            path.mkdir()
            (path / "saved_model.pb").write_text("another's")
            (tmp_path / "2").mkdir()
        rename(source, path)

    monkeypatch.setattr(os, "rename", create_and_rename)
    assert export(translator, tmp_path) == "3"
    assert (tmp_path / "1" / "saved_model.pb").read_text() == "another's" and not list((tmp_path / "2").iterdir())


def test_a_failed_export_leaves_no_files(translator, tmp_path, monkeypatch):
    def save(translator, storage, path):
        assert not path.name.isdecimal(), "servers load numbered directories"
        path.mkdir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("t2t_keras.export.writing._save", save)
    with pytest.raises(OSError, match="No space left"):
        export(translator, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_exports_that_are_not_possible_are_rejected(without_saving, translator, tmp_path, monkeypatch):
    copier = exporting.tiny.CopyModel(translator.tokenizer.vocab_size)
    copier_translator = exporting.Translator(translator.tokenizer, copier)
    with pytest.raises(ValueError, match=r"must be a keras\.Model, got CopyModel"):
        export_translator(copier_translator, exporting.config_of(translator), tmp_path)
    with pytest.raises(ValueError, match="storage must be one of float32, bfloat16; got 'int8'"):
        export(translator, tmp_path, "int8")
    with pytest.raises(ValueError, match="glossary must be None"):
        with_glossary = exporting.translator(glossary=Glossary(()))
        export_translator(with_glossary, exporting.config_of(translator), tmp_path)
    with monkeypatch.context() as patch, pytest.raises(InputError, match="a Tokenizer, not a str"):
        patch.setattr(translator, "tokenizer", "words")
        export(translator, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope(), pytest.raises(ValueError, match="outside the scope"):
        export(translator, tmp_path)
    monkeypatch.setitem(sys.modules, "tensorflow_serving.apis", None)
    with pytest.raises(InputError, match=r"pip install '\.\[serve\]'"):
        export(translator, tmp_path)
    assert list(tmp_path.iterdir()) == []
