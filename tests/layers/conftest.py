"""Fixtures of the tests of layers."""

import keras
import pytest


@pytest.fixture(autouse=True)
def random_seed():
    keras.utils.set_random_seed(7)


@pytest.fixture
def mixed_bfloat16():
    keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
    yield
    keras.mixed_precision.set_dtype_policy("float32")
