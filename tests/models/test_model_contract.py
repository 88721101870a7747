import numpy as np

from t2t_keras.models.contract import COVERAGE, initial_coverage


def test_padding_is_covered_from_the_start():
    source = np.array([[5, 6, 1], [7, 1, 0]], "int32")
    np.testing.assert_array_equal(
        initial_coverage(source, 2, frozenset({COVERAGE})), [[[0, 0, 0]] * 2, [[0, 0, 1]] * 2]
    )
    assert tuple(initial_coverage(source, 3).shape) == (2, 3, 0)
