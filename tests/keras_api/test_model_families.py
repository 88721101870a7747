"""Each model family supports what Keras documents for a model, on the current backend."""

import json

import keras
import numpy as np
import pytest

from t2t_keras.losses import SmoothedCrossEntropy
from t2t_keras.models.families import make_model
from tests.keras_api.promises import promise
from tests.keras_api.small_models import POLICIES, VOCAB, array, assert_equal, dtype_of, token_ids
from tests.training.tiny_families import TINY, tiny_family

INPUTS = {"source": token_ids(4, 7), "target": token_ids(4, 5)}
SYMBOLIC = {name: (None, None) for name in INPUTS}

every_family = pytest.mark.parametrize("family", TINY)
every_policy = pytest.mark.parametrize("policy", POLICIES)


def make(family: str, policy: str = "float32", **changes) -> keras.Model:
    keras.utils.set_random_seed(7)
    return make_model(tiny_family(family, vocab_size=VOCAB, **changes), policy)


def train(model: keras.Model, **compiled) -> list[float]:
    """Returns the losses of two updates."""
    model.compile(keras.optimizers.Adam(0.01), SmoothedCrossEntropy(0.1), **compiled)
    return model.fit(INPUTS, INPUTS["target"], epochs=2, verbose=0).history["loss"]


@promise("`get_config` as JSON, `from_config`, `keras.layers.serialize`")
@every_family
def test_a_configuration_is_json_and_restores_the_model(family):
    model = make(family, "mixed_bfloat16")
    text = json.dumps(model.get_config())
    copy = type(model).from_config(json.loads(text))
    assert json.dumps(copy.get_config()) == text
    stored = json.dumps(keras.saving.serialize_keras_object(model))
    restored = keras.saving.deserialize_keras_object(json.loads(stored))
    assert (type(restored), restored.config, restored.dtype_policy.name) == (
        type(model),
        model.config,
        "mixed_bfloat16",
    )


@promise("functional models with sequences of unknown length, `compute_output_shape`")
@pytest.mark.quick("transformer")
@every_family
def test_a_functional_model_can_contain_the_model(family, tmp_path):
    model = make(family)
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in INPUTS}
    symbolic = model(inputs)
    assert symbolic.shape == model.compute_output_shape(SYMBOLIC) == (None, None, VOCAB)
    outer = keras.Model(inputs, keras.layers.Softmax()(symbolic))
    outputs = array(outer(INPUTS))
    assert outputs.shape == (4, 5, VOCAB)
    np.testing.assert_allclose(outputs.sum(-1), 1.0, rtol=1e-5)
    outer.save(tmp_path / "outer.keras")
    loaded = keras.models.load_model(tmp_path / "outer.keras", safe_mode=True)
    np.testing.assert_allclose(array(loaded(INPUTS)), outputs, atol=1e-6)


@promise("functional models with sequences of unknown length, `compute_output_shape`")
@every_family
def test_number_of_variables(family):
    model = make(family)
    assert model.count_params() == sum(model.config.parameter_counts().values())
    assert len(model.weights) == len(model.trainable_weights) == len({variable.path for variable in model.weights})
    seeds = [variable for variable in model.variables if variable.path.endswith("seed_generator_state")]
    assert len(model.variables) == len(model.weights) + len(seeds)
    assert bool(seeds) == (getattr(model.config, "dropout_rate", 0) > 0)


@promise("the dtype policies `float32`, `float16`, `bfloat16`, `mixed_float16`, `mixed_bfloat16`")
@pytest.mark.quick(*(f"{family}-mixed_bfloat16" for family in TINY))
@every_policy
@every_family
def test_a_policy_sets_the_dtypes_of_weights(family, policy):
    exact, model = make(family), make(family, policy)
    model.set_weights(list(map(array, exact.weights)))
    outputs = model(INPUTS)
    assert dtype_of(outputs) == "float32"
    assert {dtype_of(variable) for variable in model.weights} <= {model.variable_dtype, "float32"}
    assert model.variable_dtype in {dtype_of(variable) for variable in model.weights}
    np.testing.assert_allclose(array(outputs), array(exact(INPUTS)), atol=0.1)


@promise("`fit`, `evaluate`, `predict`")
@promise("`save` and `load_model(safe_mode=True)`, with the optimizer's state; `clone_model`")
@pytest.mark.quick("transformer")
@every_family
def test_a_trained_model_is_saved_and_cloned(family, tmp_path):
    model = make(family)
    losses = train(model, run_eagerly=True)
    assert losses[1] < losses[0]
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", safe_mode=True)
    clone = keras.models.clone_model(model)
    clone.build()
    clone.set_weights(model.get_weights())
    expected = model.predict(INPUTS, verbose=0)
    for restored in (loaded, clone):
        np.testing.assert_allclose(array(restored(INPUTS)), expected, atol=1e-5)
    loss = float(array(SmoothedCrossEntropy(0.1)(INPUTS["target"], expected)))
    assert model.evaluate(INPUTS, INPUTS["target"], verbose=0) == pytest.approx(loss, rel=1e-5)
    assert_equal(loaded.optimizer.variables, model.optimizer.variables)


@promise("`jit_compile=True` and `False`", torch="not tested")
@pytest.mark.slow
@every_family
def test_compiled_training_equals_training_without_xla(family):
    uncompiled, compiled = (train(make(family), jit_compile=jit_compile) for jit_compile in (False, True))
    assert uncompiled[0] != uncompiled[1]
    np.testing.assert_allclose(compiled, uncompiled, rtol=1e-4)
