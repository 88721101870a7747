"""Variables that an export does not store: each loader computes them from the stored ones."""

import contextlib
import gc

import numpy as np
import tensorflow as tf

from t2t_keras.export.derived_variables import DerivedVariables
from t2t_keras.kernels.contexts import compute_once

WEIGHTS = np.arange(600, dtype="float32").reshape(20, 30)


def save(path, scale=1.0):
    """Saves a module with a weight and a derived variable. Returns a list with one entry for each computation of the
    derived variable: whether it was eager.
    """
    weight, computations = tf.Variable(scale * WEIGHTS, name="weight"), []
    derived = DerivedVariables(contextlib.nullcontext)

    def compute():
        computations.append(tf.executing_eagerly())
        return {"transposed": tf.transpose(weight), "nothing": None, "sum": tf.reduce_sum(weight)}

    @tf.function(input_signature=[tf.TensorSpec([None, 30])])
    def product(x):
        with derived:
            first, second = (compute_once("of_weight", compute) for _ in range(2))
        assert first is second
        return {"product": x @ first["transposed"] + 0 * second["sum"]}

    module = tf.Module()
    module.weight, module.product = weight, product
    product.get_concrete_function()
    module.derived = derived.trackable()
    tf.saved_model.save(module, str(path), {"serving_default": product})
    return computations


X = np.ones([2, 30], "float32")


def test_the_variables_are_computed_once_eagerly_and_once_in_the_initializer(tmp_path):
    assert save(tmp_path) == [True, False]


def test_the_variables_are_not_stored(tmp_path):
    save(tmp_path)
    names = tf.train.load_checkpoint(str(tmp_path / "variables" / "variables")).get_variable_to_shape_map()
    assert [name for name in names if name.endswith("VARIABLE_VALUE")] == ["weight/.ATTRIBUTES/VARIABLE_VALUE"]


def test_each_load_in_python_has_its_own_variables(tmp_path):
    save(tmp_path / "1")
    save(tmp_path / "2", scale=2.0)
    first, again, second = (tf.saved_model.load(str(tmp_path / name)) for name in ("1", "1", "2"))
    del first
    gc.collect()
    np.testing.assert_allclose(again.product(X)["product"], X @ WEIGHTS.T, rtol=1e-5)
    np.testing.assert_allclose(second.product(X)["product"], 2 * X @ WEIGHTS.T, rtol=1e-5)


def test_the_loader_of_tensorflow_1_computes_the_variables(tmp_path):
    save(tmp_path)
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        signature = tf.compat.v1.saved_model.load(session, ["serve"], str(tmp_path)).signature_def["serving_default"]
        actual = session.run(signature.outputs["product"].name, {signature.inputs["x"].name: X})
    np.testing.assert_allclose(actual, X @ WEIGHTS.T, rtol=1e-5)


def test_without_a_cache_each_call_computes_its_result():
    assert compute_once("anything", lambda: 7) == 7
