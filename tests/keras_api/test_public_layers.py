"""Each public layer supports what Keras documents for a layer, on the current backend."""

import json

import keras
import numpy as np
import pytest

from tests.keras_api.promises import promise
from tests.keras_api.small_models import POLICIES, array, assert_equal, dtype_of
from tests.layers.test_contract import CASES, Case, example, functional_model

# The numbers of trainable weights and of seed generators.
COUNTS = {
    "attention": (4, 1),
    "convolution": (3, 0),
    "attention_in_a_window": (9, 0),
    "decoder": (42, 12),
    "decoder_layer": (26, 3),
    "decoder_layer_pre": (20, 6),
    "dilated_block": (12, 1),
    "dropout": (0, 1),
    "embedding": (1, 0),
    "encoder": (28, 8),
    "encoder_layer": (16, 2),
    "experts": (5, 0),
    "feed_forward": (4, 1),
    "learned_positions": (1, 0),
    "lstm": (3, 0),
    "lstm_projected": (4, 0),
    "normalization": (2, 0),
    "sinusoidal_positions": (0, 0),
}
# Softmax is invariant to this bias, so it has no gradient except for rounding errors.
WITHOUT_GRADIENT = "/key_bias"

every_layer = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
every_policy = pytest.mark.parametrize("policy", POLICIES)


@pytest.fixture(autouse=True)
def random_seed():
    keras.utils.set_random_seed(7)


def count_variables(layer: keras.layers.Layer) -> tuple[int, int]:
    """Returns the numbers of trainable weights and of seed generators; asserts that there are no other variables."""
    seeds = [variable for variable in layer.variables if variable.path.endswith("seed_generator_state")]
    assert len(layer.variables) == len(layer.trainable_weights) + len(seeds)
    return len(layer.trainable_weights), len(seeds)


def trainable_model(case: Case, rng, **compiled) -> tuple[keras.Model, list[np.ndarray], np.ndarray]:
    """Returns a model of the layer and a projection, inputs with some padding, and targets."""
    functional = functional_model(case, case.make(**case.config))
    outputs = keras.layers.Dense(1)(functional.output)
    model, inputs = keras.Model(functional.inputs, outputs), example(case, rng)
    if case.mask is not None:
        tokens = np.ones((2, inputs[-1].shape[1]), "int32")
        tokens[0, -1] = 0
        inputs.append(tokens)
    model.compile(keras.optimizers.Adam(0.01), "mse", **compiled)
    return model, inputs, rng.standard_normal((*case.output[:-1], 1)).astype("float32")


@promise("`get_config` as JSON, `from_config`, `keras.layers.serialize`")
@every_layer
def test_a_configuration_is_json_and_restores_the_layer(case):
    layer = case.make(**case.config, name="mine", dtype="mixed_bfloat16", trainable=False)
    config = layer.get_config()
    for field, value in case.config.items():
        assert config[field] == ({**config[field], **value} if isinstance(value, dict) else value)
    text = json.dumps(config)
    copy = case.make.from_config(json.loads(text))
    assert json.dumps(copy.get_config()) == text
    assert (copy.name, copy.trainable, copy.dtype_policy.name) == ("mine", False, "mixed_bfloat16")
    restored = keras.layers.deserialize(json.loads(json.dumps(keras.layers.serialize(layer))))
    assert type(restored) is case.make
    assert json.dumps(restored.get_config()) == text


@promise("functional models with sequences of unknown length, `compute_output_shape`")
@every_layer
def test_a_symbolic_call_builds_the_layer_and_infers_the_output(case, rng):
    layer, inputs = case.make(**case.config), example(case, rng)
    symbolic = layer(*(keras.KerasTensor(x.shape, dtype_of(x)) for x in inputs))
    assert layer.built
    weights = [id(variable) for variable in layer.weights]
    outputs = layer(*inputs)
    assert [id(variable) for variable in layer.weights] == weights
    assert tuple(symbolic.shape) == tuple(outputs.shape) == case.output
    assert tuple(layer.compute_output_shape(*(x.shape for x in inputs))) == case.output
    assert symbolic.dtype == dtype_of(outputs)
    assert functional_model(case, layer).output.shape == (None, None, *case.output[2:])


@promise("functional models with sequences of unknown length, `compute_output_shape`")
@pytest.mark.parametrize("name", CASES)
def test_number_of_variables(name):
    layer, case = CASES[name].make(**CASES[name].config), CASES[name]
    functional_model(case, layer)
    assert count_variables(layer) == COUNTS[name]
    layer.trainable = False
    assert not layer.trainable_variables


@promise("the dtype policies `float32`, `float16`, `bfloat16`, `mixed_float16`, `mixed_bfloat16`")
@pytest.mark.quick(*(f"{name}-mixed_bfloat16" for name in CASES))
@every_policy
@every_layer
def test_a_policy_sets_the_dtypes_of_weights_and_outputs(case, policy, rng):
    exact, layer, inputs = case.make(**case.config), case.make(**case.config, dtype=policy), example(case, rng)
    symbolic = layer(*(keras.KerasTensor(x.shape, dtype_of(x)) for x in inputs))
    expected = array(exact(*inputs))
    layer.set_weights(list(map(array, exact.weights)))
    outputs = layer(*inputs)
    assert dtype_of(outputs) == symbolic.dtype == layer.compute_dtype
    assert {dtype_of(variable) for variable in layer.weights} <= {layer.variable_dtype, "float32"}
    np.testing.assert_allclose(array(outputs), expected, atol=0.1)


@promise("`fit`, `evaluate`, `predict`")
@promise("`save` and `load_model(safe_mode=True)`, with the optimizer's state; `clone_model`")
@pytest.mark.quick("attention", "embedding", "encoder_layer", "experts", "feed_forward")
@every_layer
def test_a_trained_layer_is_saved_and_cloned(case, rng, tmp_path):
    model, inputs, targets = trainable_model(case, rng, run_eagerly=True)
    before = list(map(array, model.trainable_weights))
    model.fit(inputs, targets, verbose=0)
    after = list(map(array, model.trainable_weights))
    unchanged = [w.path for w, x, y in zip(model.trainable_weights, before, after, strict=True) if np.all(x == y)]
    assert all(path.endswith(WITHOUT_GRADIENT) for path in unchanged)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", safe_mode=True)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    expected = model.predict(inputs, verbose=0)
    for restored in (loaded, clone):
        np.testing.assert_allclose(array(restored(inputs)), expected, atol=1e-6)
    assert model.evaluate(inputs, targets, verbose=0) == pytest.approx(np.mean((expected - targets) ** 2), rel=1e-5)
    assert_equal(loaded.optimizer.variables, model.optimizer.variables)


@promise("`jit_compile=True` and `False`", torch="not tested")
@pytest.mark.slow
@every_layer
def test_compiled_training_equals_training_without_xla(case):
    results = []
    for jit_compile in (False, True):
        keras.utils.set_random_seed(7)
        model, inputs, targets = trainable_model(case, np.random.default_rng(7), jit_compile=jit_compile)
        losses = model.fit(inputs, targets, epochs=2, verbose=0).history["loss"]
        results.append((losses, model.predict(inputs, verbose=0)))
    (losses, outputs), (compiled_losses, compiled_outputs) = results
    assert losses[0] != losses[1]
    np.testing.assert_allclose(compiled_losses, losses, rtol=1e-4)
    np.testing.assert_allclose(compiled_outputs, outputs, atol=1e-3)
