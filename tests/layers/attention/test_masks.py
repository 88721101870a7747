import keras
import numpy as np
import pytest

from t2t_keras.layers import causal_mask, padding_mask, token_rows


def test_padding_mask_is_true_on_tokens():
    mask = padding_mask(np.array([[5, 1, 0], [7, 8, 1]]))
    assert keras.backend.standardize_dtype(mask.dtype) == "bool"
    assert np.array(mask).tolist() == [[[[True, True, False]]], [[[True, True, True]]]]


def test_token_rows_are_the_positions_of_tokens():
    rows = token_rows(np.array([[5, 0, 0], [7, 8, 1], [0, 0, 0]]))
    assert keras.backend.standardize_dtype(rows.dtype) == "int32"
    assert np.array(rows).tolist() == [0, 3, 4, 5]


@pytest.mark.parametrize("length", [1, 4, keras.ops.convert_to_tensor(4)])
def test_causal_mask_shows_a_query_only_itself_and_earlier_positions(length):
    mask = np.array(causal_mask(length))
    assert mask.dtype == bool
    assert mask.shape == (1, 1, int(length), int(length))
    for query in range(int(length)):
        for key in range(int(length)):
            assert mask[0, 0, query, key] == (key <= query)
