"""Parsing and checking values of settings from text and JSON."""

import dataclasses
import math
from typing import Annotated, Literal

import numpy as np
import pytest

from t2t_keras.errors import InputError
from t2t_keras.serving.options import Limits, ServingOptions
from t2t_keras.values import PositiveFloat, PositiveInt, annotations, at_least, check_fields, checked, parsed

COLOUR = Literal["red", "blue"]


def test_integers_are_valid_floats():
    for expected in (float, float | None):
        assert checked("a.b", expected, 3) == 3.0 and isinstance(checked("a.b", expected, 3), float)


@pytest.mark.parametrize(
    ("expected", "text", "value"),
    [
        (bool, "True", True),
        (bool, "0", False),
        (int, "-3", -3),
        (float, "1e-3", 0.001),
        (float, "2", 2.0),
        (str, "a=b", "a=b"),
        (COLOUR, "blue", "blue"),
        (int | None, "none", None),
        (int | None, "4", 4),
        (float | None, "null", None),
        (COLOUR | None, "none", None),
        (COLOUR | None, "red", "red"),
        (tuple[int, ...], "3, 4,5", (3, 4, 5)),
        (tuple[int, ...] | None, "3", (3,)),
    ],
)
def test_parsing_of_text(expected, text, value):
    value_read = parsed("a.b", expected, text)
    assert (type(value_read), value_read) == (type(value), value)


@pytest.mark.parametrize(
    ("expected", "text", "message"),
    [
        (bool, "yes", "a.b must be true or false, got 'yes'"),
        (int, "1.5", "a.b must be a whole number, got '1.5'"),
        (float, "x", "a.b must be a finite number, got 'x'"),
        (float, "nan", "a.b must be a finite number, got nan"),
        (int, "none", "a.b must be a whole number, got 'none'"),
        (COLOUR, "green", "a.b must be one of red, blue; got 'green'"),
    ],
)
def test_errors_of_text(expected, text, message):
    with pytest.raises(InputError, match=message):
        parsed("a.b", expected, text)


@pytest.mark.parametrize(
    ("expected", "value"),
    [(int, True), (int, 1.0), (bool, 1), (str, 1), (float, "1"), (float, float("inf")), (float, 10**400)],
)
def test_errors_of_values(expected, value):
    with pytest.raises(InputError, match="a.b must be"):
        checked("a.b", expected, value)


def test_json_lists_become_tuples():
    assert checked("a.b", tuple[float, ...], [1, 2.5]) == (1.0, 2.5)
    assert checked("a.b", tuple[int, ...] | None, None) is None
    with pytest.raises(InputError, match=r"a\.b must be a list, got 3"):
        checked("a.b", tuple[int, ...], 3)
    with pytest.raises(InputError, match=r"a\.b must be a whole number, got 'x'"):
        parsed("a.b", tuple[int, ...], "3,x")


@dataclasses.dataclass(frozen=True)
class Sizes:
    width: PositiveInt = 4
    depth: Annotated[int, at_least(2)] | None = None
    rates: tuple[PositiveFloat, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self, "sizes.{}")


@dataclasses.dataclass(frozen=True)
class WiderSizes(Sizes):
    width: int = 8


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (Sizes, {"width": 0}, "sizes.width must be a whole number of at least 1, got 0"),
        (WiderSizes, {"width": 0}, "sizes.width must be a whole number of at least 1, got 0"),
        (Sizes, {"width": 1.5}, "sizes.width must be a whole number of at least 1, got 1.5"),
        (Sizes, {"depth": 1}, "sizes.depth must be None or a whole number of at least 2, got 1"),
        (Sizes, {"rates": [1, math.nan]}, "sizes.rates must be a finite number above 0, got nan"),
        (Sizes, {"rates": [1, 0]}, "sizes.rates must be a finite number above 0, got 0.0"),
    ],
)
def test_bounds_apply_to_subclasses(kind, values, message):
    with pytest.raises(InputError) as error:
        kind(**values)
    assert str(error.value) == message


def test_fields_are_converted_to_python_types():
    sizes = Sizes(width=np.int64(3), rates=[np.float32(1)])
    assert (sizes, type(sizes.width), sizes.rates) == (Sizes(3, None, (1.0,)), int, (1.0,))


@pytest.mark.parametrize("kind", [Limits, ServingOptions])
def test_server_settings_reject_invalid_numbers(kind, tmp_path):
    numbers = [name for name, hint in annotations(kind).items() if "Bounds" in repr(hint)]
    arguments = {} if kind is Limits else {"export_dir": str(tmp_path)}
    assert len(numbers) == (5 if kind is Limits else 16)
    for name in numbers:
        for value in (math.nan, math.inf, -1):
            with pytest.raises(InputError, match=f"^{name} must"):
                kind(**arguments, **{name: value})
