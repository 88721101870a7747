"""Loading a version of a model, and the errors that prevent it."""

import hashlib
import json

import pytest
import tensorflow as tf

from t2t_keras.serving.request_errors import Code, ServingError
from t2t_keras.serving.served_models import Loader, Model
from tests.serving import page_model, toy


def test_graphs_of_own_exports_are_not_optimized_again(monkeypatch, tmp_path):
    set_options = []
    monkeypatch.setattr(tf.config.optimizer, "set_experimental_options", set_options.append)
    toy.save(tmp_path / "other", 1)
    Model(tmp_path / "other" / "1", 1)
    assert set_options == []
    page_model.save(tmp_path / "export")
    Model(tmp_path / "export" / "1", 1)
    assert set_options == [{"disable_meta_optimizer": True}]


class Scores(tf.Module):
    """A model whose damaged weights make its output NaN."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def score(self, text):
        return {"score": tf.fill(tf.shape(text), float("nan"))}


def test_versions_whose_output_is_not_a_number_are_refused(tmp_path):
    module = Scores()
    tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": module.score})
    with pytest.raises(ServingError, match="'score' of 'serving_default' contains NaN; the weights"):
        Loader()(tmp_path, 1)


@pytest.fixture(scope="module")
def export_dir(tmp_path_factory):
    return page_model.save(tmp_path_factory.mktemp("export")) / "1"


@pytest.fixture
def vocabulary(export_dir):
    """The vocabulary of an export whose configuration contains its checksum."""
    file = export_dir / "assets" / "vocab.model"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"vocabulary" * 100)
    config = {"export": {"sha256": {"assets/vocab.model": hashlib.sha256(file.read_bytes()).hexdigest()}}}
    (export_dir / "assets.extra" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return file


def load_error(path):
    with pytest.raises(ServingError) as caught:
        Model(path, 1)
    return caught.value.code, caught.value.message


def test_damaged_vocabulary(export_dir, vocabulary):
    """TensorFlow checks only the weights, and served a model with a damaged vocabulary."""
    assert Model(export_dir, 1).signatures
    content = bytearray(vocabulary.read_bytes())
    content[500] ^= 1
    vocabulary.write_bytes(content)
    expected = f"{vocabulary} is damaged: its SHA-256 is not that of assets.extra/config.json"
    assert load_error(export_dir) == (Code.DATA_LOSS, expected)
    vocabulary.unlink()
    assert load_error(export_dir) == (Code.NOT_FOUND, f"{vocabulary}: no such file")


@pytest.mark.parametrize("config", ["", "[]", '{"data": 3, "export": {"sha256": []}}', '{"export": 3}'])
def test_configurations_of_other_projects_are_ignored(export_dir, config):
    (export_dir / "assets.extra" / "config.json").write_text(config, encoding="utf-8")
    assert Model(export_dir, 1).about == {}


def test_damaged_graph(export_dir, tmp_path, monkeypatch):
    """The message used to be "KeyError: 'while/...'"."""

    def fail(path):
        raise KeyError("while/cond")

    (export_dir / "assets.extra" / "config.json").write_text("{}", encoding="utf-8")
    monkeypatch.setattr(tf.saved_model, "load", fail)
    code, message = load_error(export_dir)
    assert code is Code.DATA_LOSS
    assert message.startswith(
        f"{export_dir}/saved_model.pb cannot be loaded by TensorFlow {tf.__version__}: it is damaged, or"
    )
    assert load_error(tmp_path) == (Code.NOT_FOUND, f"{tmp_path}/saved_model.pb: no such file")
    (tmp_path / "saved_model.pb").write_bytes(b"\xff")
    assert load_error(tmp_path) == (Code.DATA_LOSS, f"{tmp_path}/saved_model.pb is damaged, or is not a SavedModel")
