import numpy as np
import pytest
from keras import ops

from t2t_keras.layers import FeedForward
from tests.layers import numpy_oracle


@pytest.mark.parametrize("activation", ["relu", "swish", "gelu"])
def test_it_equals_equation_2(rng, activation):
    layer = FeedForward(12, activation=activation)
    layer.build((None, None, 6))
    numpy_oracle.randomise(layer, rng)
    x = rng.standard_normal((2, 3, 6))
    outputs = layer(x.astype("float32"))
    np.testing.assert_allclose(outputs, numpy_oracle.feed_forward(layer, x), atol=1e-5)
    assert layer.count_params() == 6 * 12 + 12 + 12 * 6 + 6


def test_relu_dropout_acts_on_inner_activations_in_training(rng):
    layer = FeedForward(64, dropout_rate=0.5)
    x = rng.standard_normal((2, 3, 6)).astype("float32")
    seed = ops.convert_to_tensor([1, 2], "int32")
    undropped, dropped = np.array(layer(x, seed=seed)), np.array(layer(x, seed=seed, training=True))
    np.testing.assert_array_equal(undropped, layer(x))
    np.testing.assert_array_equal(dropped, layer(x, seed=seed, training=True))
    assert np.abs(dropped - undropped).max() > 1e-3
    assert np.all(dropped != 0)


def test_skipped_positions_are_zero(rng):
    layer = FeedForward(12)
    layer.build((None, None, 6))
    numpy_oracle.randomise(layer, rng)
    x = rng.standard_normal((2, 3, 6)).astype("float32")
    outputs = np.array(layer(x, token_rows=ops.convert_to_tensor([0, 4, 5], "int32"))).reshape(6, 6)
    all_outputs = np.array(layer(x)).reshape(6, 6)
    np.testing.assert_allclose(outputs[[0, 4, 5]], all_outputs[[0, 4, 5]], atol=1e-6)
    np.testing.assert_array_equal(outputs[[1, 2, 3]], 0)
    assert layer(x, token_rows=ops.zeros((0,), "int32")).shape == (2, 3, 6)
