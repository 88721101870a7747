import numpy as np
import numpy_oracle
import pytest
from keras import ops

from t2t_keras.layers.residual import Residual


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
def test_dropout_is_on_the_sublayers_output_alone(norm_position):
    """Of a sub-layer of ones, a residual of zeros keeps 0 or 1 / (1 - rate) in pre-norm."""
    layer = Residual(norm_position, dropout_rate=0.5)
    x = ops.zeros((4, 50, 16))
    seed = ops.convert_to_tensor([1, 2], "int32")
    outputs = np.array(layer(x, sublayer=ops.ones_like, seed=seed, training=True))
    if norm_position == "pre":
        assert set(np.unique(outputs)) == {0.0, 2.0}
    else:
        assert np.abs(outputs.mean(-1)).max() < 1e-5
        assert outputs.std() == pytest.approx(1.0, abs=0.01)
    calm = layer(x, sublayer=ops.ones_like)
    np.testing.assert_array_equal(calm, ops.ones_like(x) if norm_position == "pre" else x)


def test_an_unknown_position_of_the_norm_is_refused():
    with pytest.raises(ValueError, match="`norm_position` must be 'post' or 'pre', got 'middle'"):
        Residual("middle")
