"""Runs the examples in docstrings, in which `np` is NumPy."""

import doctest
import importlib

import numpy as np
import pytest

MODULES = (
    *("layers.attention.multi_head", "layers.decoder", "layers.embedding", "layers.encoder", "layers.feed_forward"),
    *("layers.position", "losses", "models.transformer", "schedules"),
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    module = importlib.import_module(f"t2t_keras.{name}")
    result = doctest.testmod(module, extraglobs={"np": np})
    assert result.attempted >= 1 and result.failed == 0
