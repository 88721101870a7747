"""The packing of weights into one matrix."""

import numpy as np
import pytest

from t2t_keras.training.layout import MatrixLayout

SHAPES = [(3, 5), (), (128,), (2, 3, 64), (1000,), (7,)]


@pytest.fixture
def weights() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.normal(size=shape).astype(np.float32) for shape in SHAPES]


def test_weights_share_no_rows(weights):
    layout = MatrixLayout(SHAPES)
    (matrix,) = layout.join_arrays(weights)
    assert layout.shapes == [matrix.shape] == [(1 + 1 + 1 + 3 + 8 + 1, 128)]
    np.testing.assert_array_equal(matrix[0, :15], weights[0].reshape(-1))
    np.testing.assert_array_equal(matrix[0, 15:], 0)
    np.testing.assert_array_equal(matrix[2], weights[2])
    np.testing.assert_array_equal(matrix[-1, :7], weights[-1])


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_unpacked_weights_are_unchanged(weights, parts):
    layout = MatrixLayout(SHAPES, parts)
    matrices = layout.join(weights)
    assert [tuple(matrix.shape) for matrix in matrices] == layout.shapes
    views = layout.split_arrays([matrix.numpy() for matrix in matrices])
    for actual, view, expected in zip(layout.split(matrices), views, weights, strict=True):
        np.testing.assert_array_equal(actual, expected)
        np.testing.assert_array_equal(view, expected)
        assert actual.shape == view.shape == expected.shape
    for matrix, array in zip(matrices, layout.join_arrays(weights), strict=True):
        np.testing.assert_array_equal(matrix, array)


def test_a_weight_with_a_different_shape_is_rejected(weights):
    weights[0] = weights[0].T
    with pytest.raises(ValueError, match=r"shape \(3, 5\) cannot be \(5, 3\)"):
        MatrixLayout(SHAPES).join_arrays(weights)
