import keras
import numpy as np
import pytest
from keras import ops

from t2t_keras.baselines.convolution import Convolution, ConvolutionStep, gated_linear_unit
from tests.layers.numpy_oracle import numbers, randomise

SHAPES = {"centred": (3, 1, False), "causal": (3, 1, True), "dilated": (3, 4, True), "wide": (5, 2, False)}
every_shape = pytest.mark.parametrize(("kernel_size", "dilation_rate", "causal"), SHAPES.values(), ids=SHAPES)


@every_shape
def test_equals_keras(rng, kernel_size, dilation_rate, causal):
    inputs = rng.standard_normal((2, 7, 4)).astype("float32")
    layer = Convolution(6, kernel_size, dilation_rate, causal)
    padding = "causal" if causal else "same"
    reference = keras.layers.Conv1D(6, kernel_size, padding=padding, dilation_rate=dilation_rate)
    layer(inputs), reference(inputs)
    randomise(layer, rng)
    reference.set_weights([layer.kernel, layer.bias])
    np.testing.assert_allclose(layer(inputs), reference(inputs), atol=1e-5)


def test_a_kernel_of_one_position_is_linear(rng):
    inputs = rng.standard_normal((2, 3, 4)).astype("float32")
    layer = Convolution(5, 1)
    outputs = layer(inputs)  # The bias starts at zero.
    np.testing.assert_allclose(outputs, inputs @ numbers(layer.kernel)[0], atol=1e-5)


@every_shape
def test_padding_acts_as_the_end_of_the_sequence(rng, kernel_size, dilation_rate, causal):
    inputs = rng.standard_normal((2, 6, 4)).astype("float32")
    layer = Convolution(3, kernel_size, dilation_rate, causal)
    mask = np.arange(6) < np.array([[6], [4]])
    outputs = np.array(layer(inputs, mask))
    np.testing.assert_allclose(outputs[0], layer(inputs)[0], atol=1e-6)
    np.testing.assert_allclose(outputs[1, :4], layer(inputs[1:, :4])[0], atol=1e-6)


def test_a_causal_convolution_ignores_later_positions(rng):
    inputs = rng.standard_normal((1, 9, 4)).astype("float32")
    layer = Convolution(3, 3, 2, causal=True)
    outputs = np.array(layer(inputs))
    inputs[:, 5] += 1
    changed = np.abs(np.array(layer(inputs)) - outputs).max(axis=(0, 2)) > 1e-6
    np.testing.assert_array_equal(changed, [t in (5, 7) for t in range(9)])


def test_weight_normalisation_multiplies_directions_by_scales(rng):
    layer = Convolution(5, 3, weight_normalization=True, kernel_initializer=keras.initializers.RandomNormal(stddev=2))
    layer.build((None, None, 4))
    # The scale starts at the norm of the initial kernel.
    np.testing.assert_allclose(layer.weight(), layer.kernel, rtol=1e-5)
    randomise(layer, rng)
    kernel, scale = numbers(layer.kernel), numbers(layer.scale)
    weight = np.array(layer.weight())
    for output in range(5):
        expected = scale[output] * kernel[..., output] / np.linalg.norm(kernel[..., output])
        np.testing.assert_allclose(weight[..., output], expected, rtol=1e-5, atol=1e-6)
    plain = Convolution(5, 3)
    plain.build((None, None, 4))
    plain.set_weights([weight, layer.bias])
    inputs = rng.standard_normal((2, 6, 4)).astype("float32")
    np.testing.assert_allclose(layer(inputs), plain(inputs), atol=1e-5)


@pytest.mark.parametrize(("kernel_size", "dilation_rate"), [(1, 1), (3, 1), (2, 3)])
def test_steps_equal_the_call(rng, kernel_size, dilation_rate):
    layer = Convolution(5, kernel_size, dilation_rate, causal=True, weight_normalization=True)
    inputs = rng.standard_normal((2, 3, 8, 4)).astype("float32")  # [sentences, hypotheses, length, width]
    expected = np.reshape(layer(inputs.reshape((6, 8, 4))), (2, 3, 8, 5))
    step = ConvolutionStep(layer, "float32")
    past = step.empty_past(2, 3, "float32")
    assert past.shape == (2, 3, (kernel_size - 1) * dilation_rate, 4)
    for position in range(8):
        outputs, past = step(ops.convert_to_tensor(inputs[:, :, position]), past)
        np.testing.assert_allclose(outputs, expected[:, :, position], atol=1e-5)


def test_gated_linear_unit(rng):
    x = rng.standard_normal((2, 3, 8)).astype("float32")
    np.testing.assert_allclose(
        gated_linear_unit(ops.convert_to_tensor(x)), x[..., :4] / (1 + np.exp(-x[..., 4:])), atol=1e-6
    )


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"filters": 0}, "`filters` must be a whole number of at least 1, got 0"),
        ({"kernel_size": 0}, "`kernel_size` must be a whole number of at least 1, got 0"),
        ({"dilation_rate": 0}, "`dilation_rate` must be a whole number of at least 1, got 0"),
        ({"kernel_size": 2}, "`kernel_size` must be odd for a convolution that is not causal, got 2"),
    ],
)
def test_invalid_arguments_are_rejected(change, complaint):
    with pytest.raises(ValueError, match=complaint):
        Convolution(**{"filters": 2, "kernel_size": 3, **change})
