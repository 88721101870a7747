import types

import numpy as np
import pytest

from t2t_keras.errors import InputError
from t2t_keras.models.weights import assign_known_weights, weight_names


def model_of(*weights, path: str = "mine"):
    """Returns a model with these weights, or with variables that have these paths."""
    variables = [types.SimpleNamespace(path=weight) if isinstance(weight, str) else weight for weight in weights]
    return types.SimpleNamespace(trainable_variables=variables, path=path)


def test_names_are_paths_below_the_model():
    """This includes nested models, and parts that were built earlier."""
    names = ["encoder/kernel", "bias"]
    assert weight_names(model_of("mine/encoder/kernel", "mine/bias")) == names
    assert weight_names(model_of("outer/mine/encoder/kernel", "outer/mine/bias", path="outer/mine")) == names
    assert weight_names(model_of(*names)) == names


def test_two_weights_with_one_name_are_an_error():
    with pytest.raises(ValueError, match="different paths, got several expert/kernel: name the layers"):
        weight_names(model_of("mine/expert/kernel", "mine/gate", "mine/expert/kernel"))


class Weight:
    """A minimal variable."""

    def __init__(self, path: str, *shape: int) -> None:
        self.path, self.shape, self.value = path, shape, np.zeros(shape)

    def assign(self, value):
        self.value = value


def arrays(**shapes: tuple) -> dict:
    return {name.replace("_", "/"): np.ones(shape) for name, shape in shapes.items()}


def test_known_weights_are_copied_and_the_rest_is_listed():
    model_weights = Weight("mine/a", 2, 3), Weight("mine/b", 4), *(Weight(f"mine/new{i}", 1) for i in range(22))
    account = assign_known_weights(model_of(*model_weights), arrays(a=(2, 3), old_b=(5,)))
    assert model_weights[0].value.all() and not any(weight.value.any() for weight in model_weights[1:])
    copied, new, unused = account.lines()
    assert copied == "copied: 1 weight (6 parameters)"
    names = ", ".join(["b", *(f"new{i}" for i in range(19))])
    assert new == f"new: 23 weights (26 parameters): {names} and 3 more"
    assert unused == "not used: 1 weight (5 parameters): old/b"


def test_the_first_three_weights_with_different_shapes_are_named():
    model_weights = [Weight(f"mine/w{number}", 2) for number in range(170)]
    weights = {f"w{number}": np.ones(3) for number in range(170)}
    names = ", ".join(f"w{number} (3,) -> (2,)" for number in range(3))
    with pytest.raises(InputError) as error:
        assign_known_weights(model_of(*model_weights), weights)
    assert str(error.value) == f"weights with different shapes cannot be copied: {names} and 167 more"


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (arrays(a=(3, 2), b=(4,), c=(1,)), r"cannot be copied: a \(3, 2\) -> \(2, 3\), c \(1,\) -> \(\)$"),
        (arrays(d=(2, 3)), "no weight can be copied"),
    ],
)
def test_weights_that_do_not_fit_change_nothing(weights, message):
    model_weights = Weight("mine/a", 2, 3), Weight("mine/b", 4), Weight("mine/c")
    with pytest.raises(InputError, match=message):
        assign_known_weights(model_of(*model_weights), weights)
    assert not any(weight.value.any() for weight in model_weights)
