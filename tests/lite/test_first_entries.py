"""Sequences that are computed as far as somebody looks."""

import numpy as np

from t2t_keras.lite.first_entries import FirstEntries


def test_computes_no_more_than_is_asked_for_and_nothing_twice():
    asked = []

    def squares(count):
        asked.append(count)
        return np.arange(count) ** 2

    entries = FirstEntries(squares)
    for count in (3, 2, 0, 5, 4, 5):
        np.testing.assert_array_equal(entries(count), [n * n for n in range(count)])
    assert asked == [3, 5]
