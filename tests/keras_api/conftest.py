"""Gives back the memory of models, of which these tests make hundreds."""

import gc
from collections.abc import Iterator

import keras
import pytest


@pytest.fixture(autouse=True)
def models_given_back(request: pytest.FixtureRequest) -> Iterator[None]:
    """Frees the models of a test; in the integration ring, whose models are the largest."""
    yield
    if request.node.get_closest_marker("integration"):
        keras.backend.clear_session()
        gc.collect()
