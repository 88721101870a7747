"""The examples in docstrings, run as they stand; `np` is NumPy."""

import doctest
import importlib

import numpy as np
import pytest

MODULES = (
    *("layers.attention.multi_head", "layers.decoder", "layers.embedding", "layers.encoder", "layers.feed_forward"),
    *("layers.position", "losses", "models.transformer", "schedules"),
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_say(name: str) -> None:
    module = importlib.import_module(f"t2t_keras.{name}")
    found = doctest.testmod(module, extraglobs={"np": np})
    assert found.attempted >= 1 and found.failed == 0
