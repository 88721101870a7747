"""Seeds the random numbers of each test."""

import keras
import pytest


@pytest.fixture(autouse=True)
def random_seed():
    keras.utils.set_random_seed(7)
