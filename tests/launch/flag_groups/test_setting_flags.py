"""Flags that are defined by the fields of settings."""

import dataclasses
import inspect

import pytest

from launch.flag_groups import setting_flags
from t2t_keras.config import DataConfig, DecodeConfig, TrainConfig


@pytest.mark.parametrize("settings", [DataConfig, DecodeConfig, TrainConfig])
def test_every_field_has_a_one_line_description(settings):
    descriptions = setting_flags.descriptions(settings)
    assert list(descriptions) == [field.name for field in dataclasses.fields(settings)]
    for text in descriptions.values():
        assert "\n" not in text and "  " not in text and not text.endswith(".")
    assert setting_flags.descriptions(DecodeConfig)["seed"].startswith("random seed of sampling; a sentence's samples")


def test_descriptions_ignore_indentation(monkeypatch):
    """Python 3.13 strips the indentation of docstrings."""
    expected = setting_flags.descriptions(DecodeConfig)
    monkeypatch.setattr(DecodeConfig, "__doc__", inspect.cleandoc(DecodeConfig.__doc__))
    assert setting_flags.descriptions(DecodeConfig) == expected
    monkeypatch.setattr(DecodeConfig, "__doc__", None)
    assert setting_flags.descriptions(DecodeConfig)["seed"] == "seed"
