import numpy as np
import pytest

from t2t_keras.baselines.bytenet.dilated_block import DilatedBlock
from tests.layers.numpy_oracle import layer_norm, numbers, randomise


@pytest.fixture
def block(rng):
    layer = DilatedBlock(5, 3, 2, causal=True)
    layer.build((None, None, 8))
    randomise(layer, rng)
    return layer


def test_the_formula(block, rng):
    x = rng.standard_normal((1, 6, 8)).astype("float32")
    inner = np.maximum(layer_norm(block.input_norm, x[0]), 0) @ numbers(block.narrowing.kernel)[0]
    inner = np.maximum(layer_norm(block.inner_norm, inner + numbers(block.narrowing.bias)), 0)
    first, middle, last = numbers(block.dilated.kernel)
    past = np.concatenate([np.zeros((4, 5)), inner])
    convolved = past[:6] @ first + past[2:8] @ middle + inner @ last + numbers(block.dilated.bias)
    outer = np.maximum(layer_norm(block.output_norm, convolved), 0) @ numbers(block.widening.kernel)[0]
    np.testing.assert_allclose(block(x)[0], x[0] + outer + numbers(block.widening.bias), rtol=1e-4, atol=1e-5)


def test_padding_is_not_read(rng):
    layer = DilatedBlock(5, 3, 2)
    x = rng.standard_normal((2, 6, 8)).astype("float32")
    layer(x)
    randomise(layer, rng)
    outputs = layer(x, np.arange(6) < np.array([[6], [4]]))
    np.testing.assert_allclose(outputs[0], layer(x[:1])[0], atol=1e-5)
    np.testing.assert_allclose(outputs[1, :4], layer(x[1:, :4])[0], atol=1e-5)
