"""Flags made from the fields of settings."""

import dataclasses
import inspect

import pytest

from launch.flag_groups import setting_flags
from t2t_keras.config import DataConfig, DecodeConfig, TrainConfig


@pytest.mark.parametrize("settings", [DataConfig, DecodeConfig, TrainConfig])
def test_every_field_has_a_description_on_one_line(settings):
    found = setting_flags.descriptions(settings)
    assert list(found) == [field.name for field in dataclasses.fields(settings)]
    for text in found.values():
        assert "\n" not in text and "  " not in text and not text.endswith(".")
    assert setting_flags.descriptions(DecodeConfig)["seed"].startswith("random seed of sampling; a sentence's samples")


def test_indentation_does_not_matter(monkeypatch):
    """Python 3.13 strips it from docstrings."""
    expected = setting_flags.descriptions(DecodeConfig)
    monkeypatch.setattr(DecodeConfig, "__doc__", inspect.cleandoc(DecodeConfig.__doc__))
    assert setting_flags.descriptions(DecodeConfig) == expected
    monkeypatch.setattr(DecodeConfig, "__doc__", None)
    assert setting_flags.descriptions(DecodeConfig)["seed"] == "seed"
