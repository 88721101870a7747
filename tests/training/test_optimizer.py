"""Adam against NumPy, including gradients of repeated embedding lookups."""

import numpy as np
import tensorflow as tf

from t2t_keras.config import TrainConfig
from t2t_keras.training.optimizer import Adam
from t2t_keras.training.updates import adam as plain_adam
from tests.training.numpy_adam import NumpyAdam

BETA1, BETA2, EPSILON = 0.9, 0.98, 1e-9
RATES = (0.01, 0.02, 0.03, 0.005, 0.002)


def assert_equal_states(adam: Adam, expected: NumpyAdam) -> None:
    for name in ("first_moments", "second_moments"):
        for actual, expected_array in zip(getattr(adam, name), getattr(expected, name), strict=True):
            np.testing.assert_allclose(actual.numpy(), expected_array, rtol=1e-5, atol=1e-9)
    for actual, expected_array in zip(adam.weights, expected.weights, strict=True):
        np.testing.assert_allclose(actual.numpy(), expected_array, rtol=1e-5, atol=1e-6)


def test_equals_numpy():
    random = np.random.default_rng(0)
    weights = [random.normal(size=shape).astype(np.float32) for shape in ((5, 3), (7,), ())]
    variables = [tf.Variable(array) for array in weights]
    adam, expected = Adam(variables, BETA1, BETA2, EPSILON), NumpyAdam(weights, BETA1, BETA2, EPSILON)
    apply = tf.function(adam.apply)
    for step, rate in enumerate(RATES, start=1):
        # The sizes differ greatly, so that the second moment matters, and one gradient is zero, so that epsilon does.
        gradients = [random.normal(size=array.shape) * 10.0 ** (step - 3) for array in weights]
        gradients[1] = gradients[1] * (step != 2)
        apply(
            [tf.constant(g, tf.float32) for g in gradients],
            tf.constant(rate),
            tf.constant(step, tf.int64),
        )
        expected.apply(gradients, rate, step)
        assert_equal_states(adam, expected)


def test_the_plain_version_equals_numpy():
    random = np.random.default_rng(0)
    weight = random.normal(size=(5, 3)).astype(np.float32)
    config = TrainConfig(adam_beta1=BETA1, adam_beta2=BETA2, adam_epsilon=EPSILON)
    expected, moments = NumpyAdam([weight], BETA1, BETA2, EPSILON), (np.zeros_like(weight), np.zeros_like(weight))
    for step, rate in enumerate(RATES, start=1):
        gradient = (random.normal(size=weight.shape) * 10.0 ** (step - 3)).astype(np.float32)
        weight, moments = plain_adam(weight, moments, gradient, np.float32(rate), np.int32(step), config)
        expected.apply([gradient], rate, step)
        np.testing.assert_allclose(weight, expected.weights[0], rtol=1e-5, atol=1e-6)


def test_repeated_ids_are_summed_before_they_are_squared():
    random = np.random.default_rng(1)
    table = random.normal(size=(6, 4)).astype(np.float32)
    variable = tf.Variable(table)
    adam, expected = Adam([variable], BETA1, BETA2, EPSILON), NumpyAdam([table], BETA1, BETA2, EPSILON)

    @tf.function
    def update(ids: tf.Tensor, upstream: tf.Tensor, rate: tf.Tensor, step: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(variable, ids) * upstream)
        slices = tape.gradient(loss, variable)
        assert isinstance(slices, tf.IndexedSlices)  # one row per lookup, so that repetitions must be summed
        adam.apply([tf.convert_to_tensor(slices)], rate, step)

    for step, rate in enumerate(RATES, start=1):
        ids = random.integers(0, 4, 12).astype(np.int32)  # never rows 4 and 5
        ids[:3] = 2
        upstream = random.normal(size=(12, 4)).astype(np.float32)
        update(ids, upstream, tf.constant(rate), tf.constant(step))
        dense = np.zeros_like(table, np.float64)
        np.add.at(dense, ids, upstream)
        expected.apply([dense], rate, step)
    assert_equal_states(adam, expected)
    np.testing.assert_array_equal(variable.numpy()[4:], table[4:])
