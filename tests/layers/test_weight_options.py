"""Initializers, regularizers, constraints and activations, as Keras's own layers accept them."""

import json
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from t2t_keras import layers

OPTIONS: dict[str, Any] = {
    "kernel_initializer": keras.initializers.RandomNormal(stddev=0.5),
    "bias_initializer": "ones",
    "kernel_regularizer": keras.regularizers.L2(0.1),
    "bias_regularizer": "l1",
    "kernel_constraint": keras.constraints.MaxNorm(0.7),
    "bias_constraint": "non_neg",
}
SIZES: dict[str, Any] = {"num_heads": 2, "d_ff": 12}
X, MEMORY = (None, None, 8), (None, None, 6)
CASES = {
    "attention": (layers.MultiHeadAttention, {"num_heads": 2}, [X, MEMORY]),
    "feed_forward": (layers.FeedForward, {"d_ff": 12}, [X]),
    "experts": (layers.MixtureOfExperts, {"num_experts": 3, "experts_per_token": 1, "d_expert": 5}, [X]),
    "encoder_layer": (layers.EncoderLayer, SIZES, [X]),
    "decoder_layer": (layers.DecoderLayer, {**SIZES, "num_experts": 4}, [X, MEMORY]),
    "encoder": (layers.Encoder, {"num_layers": 2, **SIZES}, [X]),
    "decoder": (layers.Decoder, {"num_layers": 2, **SIZES}, [X, MEMORY]),
}


@keras.saving.register_keras_serializable(package="tests")
def cubed(x):
    return x**3


@pytest.mark.parametrize("name", CASES)
def test_options_apply_to_every_kernel_and_bias(name):
    kind, arguments, shapes = CASES[name]
    layer = kind(**arguments, **OPTIONS)
    layer.build(*shapes)
    kernels = [
        weight for weight in layer.weights if "_kernel" in weight.name and weight.name.split("_")[0] not in GATES
    ]
    biases = [weight for weight in layer.weights if "_bias" in weight.name]
    assert len(kernels) >= 2 and len(biases) >= 2
    for kernel in kernels:
        assert 0.35 < float(ops.std(kernel)) < 0.65, kernel.path
        assert float(kernel.regularizer.l2) == pytest.approx(0.1) and kernel.constraint.max_value == 0.7
    for bias in biases:
        np.testing.assert_array_equal(bias, np.ones(bias.shape))
        assert float(bias.regularizer.l1) == pytest.approx(0.01) and type(bias.constraint) is keras.constraints.NonNeg
    values = [np.array(kernel).ravel()[:5].tolist() for kernel in kernels]
    assert len({*map(tuple, values)}) == len(kernels)  # each is drawn separately


GATES = ("gate", "noise")


@pytest.mark.parametrize("name", CASES)
def test_options_are_stored_as_json(name):
    kind, arguments, _ = CASES[name]
    layer = kind(**arguments, **OPTIONS)
    config = json.loads(json.dumps(layer.get_config()))
    restored = kind.from_config(config)
    assert json.loads(json.dumps(restored.get_config())) == config
    assert type(restored.kernel_constraint) is keras.constraints.MaxNorm
    assert restored.kernel_initializer.stddev == 0.5


@pytest.mark.parametrize("seed", [None, 3, keras.random.SeedGenerator(3)], ids=["none", "number", "generator"])
def test_experts_are_initialised_separately(seed):
    initializer = keras.initializers.Orthogonal(seed=seed) if seed else "orthogonal"
    layer = layers.MixtureOfExperts(3, 1, 5, kernel_initializer=initializer)
    layer.build(X)
    for kernel in np.array(layer.inner_kernels):  # [d_in, d_expert]
        np.testing.assert_allclose(kernel.T @ kernel, np.eye(5), atol=1e-5)
    assert np.abs(np.diff(layer.inner_kernels, axis=0)).min() > 0


def test_query_and_key_kernels_use_the_kernel_initializer_by_default():
    ones = keras.initializers.Ones()
    attention = layers.EncoderLayer(**SIZES, kernel_initializer=ones).self_attention
    attention.build(X, X)
    np.testing.assert_array_equal(attention.query_kernel, np.ones((8, 8)))
    attention = layers.EncoderLayer(**SIZES, kernel_initializer=ones, query_key_initializer="lecun_uniform")
    attention.build(X)
    assert np.ptp(attention.self_attention.key_kernel) > 0
    np.testing.assert_array_equal(attention.self_attention.value_kernel, np.ones((8, 8)))
    layer = layers.MultiHeadAttention(2, query_key_initializer=keras.initializers.HeNormal(seed=3))
    restored = layers.MultiHeadAttention.from_config(json.loads(json.dumps(layer.get_config())))
    assert restored.query_key_initializer.get_config()["seed"] == 3


def test_the_embedding_has_the_options_of_a_keras_embedding():
    layer = layers.TiedEmbedding(9, 8, embeddings_initializer="ones", embeddings_regularizer="l2")
    layer.build()
    np.testing.assert_array_equal(layer.table, np.ones((9, 8)))
    assert len(layer.losses) == 1
    config = json.loads(json.dumps(layers.TiedEmbedding(9, 8, embeddings_constraint="unit_norm").get_config()))
    assert type(layers.TiedEmbedding.from_config(config).embeddings_constraint) is keras.constraints.UnitNorm


@pytest.mark.parametrize(
    "activation",
    ["gelu", keras.activations.tanh, cubed, keras.layers.LeakyReLU(), None],
    ids=["name", "keras", "own", "layer", "linear"],
)
def test_activations_can_be_names_or_functions(activation, rng, tmp_path):
    inputs = keras.Input((None, 8))
    model = keras.Model(inputs, layers.EncoderLayer(**SIZES, activation=activation)(inputs))
    model.save(tmp_path / "model.keras")
    x = rng.standard_normal((2, 5, 8)).astype("float32")
    np.testing.assert_array_equal(keras.models.load_model(tmp_path / "model.keras")(x), model(x))
    layer, activate = layers.FeedForward(12, activation=activation), keras.activations.get(activation)
    layer.build((None, None, 8))
    expected = activate(x @ layer.inner_kernel) @ layer.outer_kernel
    np.testing.assert_allclose(layer(x), expected, atol=1e-5)
    json.dumps(layer.get_config())


def test_regularizers_are_part_of_the_loss_of_fit(rng):
    inputs = keras.Input((None, 8))
    model = keras.Model(inputs, layers.FeedForward(12, kernel_regularizer=keras.regularizers.L2(1.0))(inputs))
    model.compile("sgd", lambda targets, outputs: 0 * ops.mean(outputs), jit_compile=False)
    squares = sum(float(ops.sum(ops.square(kernel))) for kernel in model.weights if "kernel" in kernel.name)
    x = rng.standard_normal((2, 5, 8)).astype("float32")
    assert model.evaluate(x, x, verbose=0) == pytest.approx(squares, rel=1e-5)


@pytest.mark.parametrize("make", [lambda: layers.Encoder(1, **SIZES), lambda: layers.FeedForward(4)])
def test_lora_and_quantization_are_rejected(make):
    layer = make()
    layer.build(X)
    assert not hasattr(layer, "enable_lora")
    with pytest.raises(AttributeError, match="has no `enable_lora`: Keras has LoRA only in its own layers; freeze"):
        layer.enable_lora(4)
    with pytest.raises(NotImplementedError, match="no quantized version of .*; .* --compute_type=int8"):
        layer.quantize("int8")


@pytest.mark.parametrize(
    ("layer", "weights"),
    [
        (layers.LayerNormalization, ("scale", "offset")),
        (lambda **options: layers.LearnedPositions(6, **options), ("embeddings",)),
    ],
    ids=["normalization", "positions"],
)
def test_normalisation_and_positions_have_options(layer, weights):
    options = {"initializer": keras.initializers.Constant(3.0), "regularizer": "l2", "constraint": "unit_norm"}
    built_layer = layer(**{f"{weight}_{kind}": value for weight in weights for kind, value in options.items()})
    built_layer.build((None, None, 8))
    for weight in built_layer.weights:
        np.testing.assert_array_equal(weight, np.full(weight.shape, 3.0))
        assert type(weight.constraint) is keras.constraints.UnitNorm
    assert len(built_layer.losses) == len(built_layer.weights) == len(weights)
    config = json.loads(json.dumps(built_layer.get_config()))
    assert json.loads(json.dumps(type(built_layer).from_config(config).get_config())) == config
    with pytest.raises(ValueError, match=f"`{weights[0]}_regularizer` must be a Keras regularizer or its name, got 3"):
        layer(**{f"{weights[0]}_regularizer": 3})
