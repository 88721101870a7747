"""Values of settings, from text and from JSON."""

from typing import Literal

import pytest

from t2t_keras.config.values import checked, parsed
from t2t_keras.errors import InputError

COLOUR = Literal["red", "blue"]


def test_whole_numbers_are_numbers():
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
def test_text_becomes_a_value_of_the_type(expected, text, value):
    found = parsed("a.b", expected, text)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("expected", "text", "message"),
    [
        (bool, "yes", "a.b must be true or false, got 'yes'"),
        (int, "1.5", "a.b must be of type int, got '1.5'"),
        (float, "x", "a.b must be of type float, got 'x'"),
        (float, "nan", "a.b must be a finite number, got nan"),
        (int, "none", "a.b must be of type int, got 'none'"),
        (COLOUR, "green", "a.b must be one of red, blue; got 'green'"),
    ],
)
def test_other_text_is_an_error_that_names_the_field(expected, text, message):
    with pytest.raises(InputError, match=message):
        parsed("a.b", expected, text)


@pytest.mark.parametrize(
    ("expected", "value"),
    [(int, True), (int, 1.0), (bool, 1), (str, 1), (float, "1"), (float, float("inf")), (float, 10**400)],
)
def test_a_value_of_another_type_is_an_error(expected, value):
    with pytest.raises(InputError, match="a.b must be"):
        checked("a.b", expected, value)


def test_a_list_of_json_becomes_a_tuple():
    assert checked("a.b", tuple[float, ...], [1, 2.5]) == (1.0, 2.5)
    assert checked("a.b", tuple[int, ...] | None, None) is None
    with pytest.raises(InputError, match=r"a\.b must be a list, got 3"):
        checked("a.b", tuple[int, ...], 3)
    with pytest.raises(InputError, match=r"a\.b must be of type int, got 'x'"):
        parsed("a.b", tuple[int, ...], "3,x")
