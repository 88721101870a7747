"""The two-stage selection against a stable sort."""

import numpy as np
import pytest

from t2t_keras.search.top_k import largest, top_k


def expected(values: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(-values, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(values, order, axis=1), order


@pytest.mark.parametrize("k", [1, 2, 9, 21])
@pytest.mark.parametrize("width", [21, 1000, 1024, 8000, 8009, 37003])
@pytest.mark.parametrize("levels", [None, 30, 2])
def test_equals_stable_sort(width, k, levels):
    values = np.random.default_rng(width + k).normal(size=(5, width)).astype(np.float32)
    if levels is not None:
        values = np.round(values * levels / 4)  # creates many equal entries
    for actual, expected_part in zip(top_k(values, k), expected(values, k), strict=True):
        np.testing.assert_array_equal(actual, expected_part)


def test_excluded_entries_come_last():
    values = np.full((2, 3001), -np.inf, np.float32)
    values[0, 2990] = 1.0
    actual, ids = top_k(values, 4)
    np.testing.assert_array_equal(ids, [[2990, 0, 1, 2], [0, 1, 2, 3]])
    np.testing.assert_array_equal(actual, [[1.0] + [-np.inf] * 3, [-np.inf] * 4])


def test_invalid_arguments_are_named():
    with pytest.raises(ValueError, match="k=4"):
        top_k(np.zeros((1, 3), np.float32), 4)


@pytest.mark.parametrize("width", [1, 7, 1000, 1009, 8000, 37000])
def test_largest_is_the_first_of_top_k(width):
    values = np.random.default_rng(width).integers(0, 50, (9, width)).astype(np.float32)
    best, places = largest(values)
    np.testing.assert_array_equal(places, values.argmax(1))
    np.testing.assert_array_equal(best, values.max(1))
    assert places.dtype == "int32"
