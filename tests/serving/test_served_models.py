"""A version in memory, or why it cannot be loaded."""

import hashlib
import json

import pytest
import tensorflow as tf

from t2t_keras.serving.request_errors import Code, ServingError
from t2t_keras.serving.served_models import Model
from tests.serving import page_model, toy


def test_graphs_are_rewritten_unless_they_are_of_this_projects_export(monkeypatch, tmp_path):
    set_options = []
    monkeypatch.setattr(tf.config.optimizer, "set_experimental_options", set_options.append)
    toy.save(tmp_path / "other", 1)
    Model(tmp_path / "other" / "1", 1)
    assert set_options == []
    page_model.save(tmp_path / "export")
    Model(tmp_path / "export" / "1", 1)
    assert set_options == [{"disable_meta_optimizer": True}]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return page_model.save(tmp_path_factory.mktemp("export")) / "1"


@pytest.fixture
def vocabulary(saved):
    """The vocabulary of an export whose configuration has its checksum."""
    file = saved / "assets" / "vocab.model"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"vocabulary" * 100)
    config = {"export": {"sha256": {"assets/vocab.model": hashlib.sha256(file.read_bytes()).hexdigest()}}}
    (saved / "assets.extra" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return file


def refusal(path):
    with pytest.raises(ServingError) as caught:
        Model(path, 1)
    return caught.value.code, caught.value.message


def test_a_flipped_bit_in_the_vocabulary_is_told(saved, vocabulary):
    """TensorFlow checks only the weights, and served it."""
    assert Model(saved, 1).signatures
    content = bytearray(vocabulary.read_bytes())
    content[500] ^= 1
    vocabulary.write_bytes(content)
    wanted = f"{vocabulary} is damaged: its SHA-256 is not that of assets.extra/config.json"
    assert refusal(saved) == (Code.DATA_LOSS, wanted)
    vocabulary.unlink()
    assert refusal(saved) == (Code.NOT_FOUND, f"{vocabulary}: no such file")


@pytest.mark.parametrize("config", ["", "[]", '{"data": 3, "export": {"sha256": []}}', '{"export": 3}'])
def test_a_configuration_of_another_kind_says_nothing(saved, config):
    (saved / "assets.extra" / "config.json").write_text(config, encoding="utf-8")
    assert Model(saved, 1).about == {}


def test_why_a_graph_cannot_be_loaded_is_told_in_words(saved, tmp_path, monkeypatch):
    """It was told as: KeyError: 'while/...'."""

    def fail(path):
        raise KeyError("while/cond")

    (saved / "assets.extra" / "config.json").write_text("{}", encoding="utf-8")
    monkeypatch.setattr(tf.saved_model, "load", fail)
    code, message = refusal(saved)
    assert code is Code.DATA_LOSS
    assert message.startswith(
        f"{saved}/saved_model.pb cannot be loaded by TensorFlow {tf.__version__}: it is damaged, or"
    )
    assert refusal(tmp_path) == (Code.NOT_FOUND, f"{tmp_path}/saved_model.pb: no such file")
    (tmp_path / "saved_model.pb").write_bytes(b"\xff")
    assert refusal(tmp_path) == (Code.DATA_LOSS, f"{tmp_path}/saved_model.pb is damaged, or is not a SavedModel")
