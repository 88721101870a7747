"""A version in memory."""

import page_model
import tensorflow as tf
import toy

from t2t_keras.serving.served_models import Model


def test_graphs_are_rewritten_unless_they_are_of_this_projects_export(monkeypatch, tmp_path):
    set_options = []
    monkeypatch.setattr(tf.config.optimizer, "set_experimental_options", set_options.append)
    toy.save(tmp_path / "other", 1)
    Model(tmp_path / "other" / "1", 1)
    assert set_options == []
    page_model.save(tmp_path / "export")
    Model(tmp_path / "export" / "1", 1)
    assert set_options == [{"disable_meta_optimizer": True}]
