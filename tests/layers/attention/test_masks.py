import keras
import numpy as np
import pytest
from keras import ops

from t2t_keras.layers import MultiHeadAttention, causal_mask, padding_mask, token_rows, window_mask


def test_padding_mask_is_true_on_tokens():
    mask = padding_mask(np.array([[5, 1, 0], [7, 8, 1]]))
    assert keras.backend.standardize_dtype(mask.dtype) == "bool"
    assert np.array(mask).tolist() == [[[[True, True, False]]], [[[True, True, True]]]]


def test_token_rows_are_the_positions_of_tokens():
    rows = token_rows(np.array([[5, 0, 0], [7, 8, 1], [0, 0, 0]]))
    assert keras.backend.standardize_dtype(rows.dtype) == "int32"
    assert np.array(rows).tolist() == [0, 3, 4, 5]


@pytest.mark.parametrize("length", [1, 4, keras.ops.convert_to_tensor(4)])
def test_causal_mask_lets_a_query_see_itself_and_what_came_before(length):
    mask = np.array(causal_mask(length))
    assert mask.dtype == bool
    assert mask.shape == (1, 1, int(length), int(length))
    for query in range(int(length)):
        for key in range(int(length)):
            assert mask[0, 0, query, key] == (key <= query)


@pytest.mark.parametrize("make", [causal_mask, lambda length: window_mask(length, (1, 1))])
def test_a_length_that_is_not_known_is_refused(make):
    with pytest.raises(ValueError, match="`length` is None, as of a symbolic input; make the mask within a layer"):
        make(keras.Input((None,), dtype="int32").shape[1])


def test_a_functional_model_makes_its_mask_in_a_lambda():
    inputs = keras.Input((None, 8))
    mask = keras.layers.Lambda(lambda x: causal_mask(ops.shape(x)[1]))(inputs)
    attention = MultiHeadAttention(2, 4)
    model = keras.Model(inputs, attention(inputs, inputs, mask))
    x = np.random.default_rng(1).normal(size=(2, 5, 8)).astype("float32")
    np.testing.assert_allclose(model(x), attention(x, x, causal_mask(5)), atol=1e-6)
