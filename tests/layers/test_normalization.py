import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.layers import LayerNormalization
from tests.layers import numpy_oracle


@pytest.mark.parametrize("shape", [(5, 6), (2, 3, 6), (2, 3, 4, 6)])
@pytest.mark.parametrize("epsilon", [1e-6, 0.1])
def test_normalization_equals_the_formula(rng, shape, epsilon):
    layer = LayerNormalization(epsilon)
    layer.build(shape)
    numpy_oracle.randomise(layer, rng)
    x = 3.0 + rng.standard_normal(shape)
    np.testing.assert_allclose(layer(x.astype("float32")), numpy_oracle.layer_norm(layer, x), atol=1e-5)


def test_one_vector_has_the_gradients_of_a_row(rng):
    layer, x = LayerNormalization(), tf.constant(rng.standard_normal(6), "float32")
    layer.build((6,))
    results = []
    for inputs in (x, x[tf.newaxis]):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = tf.reduce_sum(layer(inputs) ** 3)
        results.append(tape.gradient(loss, [inputs, *(weight.value for weight in layer.weights)]))
    for single, row in zip(*results, strict=True):
        np.testing.assert_allclose(single, tf.reshape(row, single.shape), atol=1e-6)


@pytest.mark.parametrize("policy", ["bfloat16", "float64", "mixed_bfloat16"])
def test_weights_are_float32_under_any_policy(rng, policy):
    layer = LayerNormalization(dtype=policy)
    outputs = layer(rng.standard_normal((2, 3, 6)).astype("float32"))
    assert outputs.dtype == layer.compute_dtype
    assert {weight.dtype for weight in layer.weights} == {"float32"}


def test_initial_outputs_have_mean_0_and_deviation_1(rng):
    outputs = np.array(LayerNormalization()(5.0 + 2.0 * rng.standard_normal((4, 64)).astype("float32")))
    np.testing.assert_allclose(outputs.mean(-1), 0.0, atol=1e-5)
    np.testing.assert_allclose(outputs.std(-1), 1.0, atol=1e-4)


def test_equal_elements_give_the_offset():
    assert np.all(np.array(LayerNormalization()(np.full((2, 8), 1e4, "float32"))) == 0)


def test_normalization_computes_in_float32_under_mixed_precision(rng, mixed_bfloat16):
    layer = LayerNormalization()
    layer.build((None, 64))
    scale = layer.scale
    scale.assign(np.full(64, 1.001, "float32"))  # bfloat16 would round this to 1
    x = keras.ops.cast(rng.standard_normal((200, 64)), "bfloat16")
    outputs = keras.ops.cast(layer(x), "float32")
    assert keras.backend.standardize_dtype(layer(x).dtype) == "bfloat16"
    expected = numpy_oracle.layer_norm(layer, np.array(keras.ops.cast(x, "float32"), np.float64))
    # The result is rounded once, to 8 bits: an error of half a unit in the last place.
    np.testing.assert_allclose(outputs, expected, rtol=2.0**-8)
