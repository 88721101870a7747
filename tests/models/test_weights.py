"""Weights by name."""

import types

import pytest

from t2t_keras.models.weights import weight_names


def model_of(*paths: str):
    return types.SimpleNamespace(trainable_variables=[types.SimpleNamespace(path=path) for path in paths])


def test_names_are_paths_below_the_model():
    assert weight_names(model_of("mine/encoder/kernel", "mine/bias")) == ["encoder/kernel", "bias"]


def test_two_weights_of_one_name_would_lose_one():
    with pytest.raises(ValueError, match="different paths, got several expert/kernel: name the layers"):
        weight_names(model_of("m/expert/kernel", "m/gate", "m/expert/kernel"))
