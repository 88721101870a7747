import numpy as np
import pytest
from keras import ops

from t2t_keras.layers.residual import Residual
from tests.layers import numpy_oracle


@pytest.mark.parametrize("norm_position", ["post", "pre"])
def test_it_equals_figure_1_around_any_sublayer(rng, norm_position):
    layer = Residual(norm_position, epsilon=1e-3)
    layer.build((None, None, 6))
    numpy_oracle.randomise(layer, rng)
    x = rng.standard_normal((2, 3, 6))
    expected = numpy_oracle.add_and_norm(layer, x, lambda y: y**2 - 1.0)
    outputs = layer(ops.convert_to_tensor(x, "float32"), sublayer=lambda y: ops.square(y) - 1.0)
    np.testing.assert_allclose(outputs, expected, atol=1e-5)


@pytest.mark.parametrize("norm_position", ["post", "pre"])
def test_dropout_is_on_the_sublayers_output_alone(rng, norm_position):
    """For a sub-layer that returns ones, 0 or 1 / (1 - rate) is added to each input, and no input is dropped."""
    layer = Residual(norm_position, dropout_rate=0.5)
    x = rng.standard_normal((4, 50, 16)).astype("float32")
    seed = ops.convert_to_tensor([1, 2], "int32")
    outputs = np.array(layer(x, sublayer=ops.ones_like, seed=seed, training=True))
    dropped = np.array(layer.dropout(ops.ones_like(x), seed=seed, training=True))
    assert set(np.unique(dropped)) == {0.0, 2.0}
    undropped = np.array(layer(x, sublayer=ops.ones_like))
    if norm_position == "pre":
        np.testing.assert_allclose(outputs, x + dropped, atol=1e-6)
        np.testing.assert_allclose(undropped, x + 1.0, atol=1e-6)
    else:
        np.testing.assert_allclose(outputs, numpy_oracle.layer_norm(layer.norm, x + dropped), atol=1e-5)
        np.testing.assert_allclose(undropped, numpy_oracle.layer_norm(layer.norm, x + 1.0), atol=1e-5)
