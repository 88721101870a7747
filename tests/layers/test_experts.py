"""Mixtures of experts against NumPy: gates, load, balance loss, and the cost per position."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from t2t_keras import kernels
from t2t_keras.layers import Decoder, Encoder, FeedForward, MixtureOfExperts, causal_mask
from t2t_keras.layers.collectors import AuxiliaryLosses
from tests.layers import numpy_oracle

EXPERTS, WIDTH, INNER = 6, 5, 7
MASK = np.arange(4) < np.array([[4], [2], [1]])
ROWS = np.flatnonzero(MASK).astype("int32")
SEED = np.array([5, 6], np.int32)


def make(rng, experts_per_token: int = 2, **changes) -> MixtureOfExperts:
    layer = MixtureOfExperts(EXPERTS, experts_per_token, INNER, **changes)
    layer.build((None, None, WIDTH))
    numpy_oracle.randomise(layer, rng, 0.8)
    return layer


def call_with_loss(layer, *inputs, token_mask=None, **options) -> tuple:
    """Returns the outputs, and the sum of the balance losses of each sentence."""
    with AuxiliaryLosses(token_mask) as collector:
        outputs = layer(*inputs, **options)
    return outputs, collector.total()


def example(rng) -> np.ndarray:
    return rng.standard_normal((3, 4, WIDTH)).astype("float32")


def gate_noise(rows: int) -> np.ndarray:
    """Returns the noise that the layer draws from `SEED`."""
    return np.array(kernels.normal((rows, EXPERTS), ops.convert_to_tensor(SEED * 1664525 + 69069)), "float64")


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("k", [1, 2, 5, EXPERTS])
def test_equals_numpy(rng, k, training):
    """The reference multiplies all experts by their gates, of which k are above 0."""
    layer, x = make(rng, k), example(rng)
    outputs, loss = call_with_loss(layer, x, seed=ops.convert_to_tensor(SEED), training=training)
    rows = x.reshape(-1, WIDTH)
    gates, load = numpy_oracle.gates(layer, rows, gate_noise(12) if training else None)
    np.testing.assert_array_equal(np.count_nonzero(gates, axis=1), k)
    expected = numpy_oracle.mixture(layer, rows, gates).reshape(x.shape)
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)
    for sentence in range(3):
        usage = [part.reshape(3, 4, EXPERTS)[sentence].sum(0) for part in (gates, load)]
        expected_loss = 0.01 * sum(map(numpy_oracle.squared_variation, usage))
        np.testing.assert_allclose(loss[sentence], expected_loss, rtol=2e-4, atol=1e-8)


@pytest.mark.parametrize("training", [False, True])
def test_gates(rng, training):
    layer, x = make(rng, 3), example(rng).reshape(-1, WIDTH)
    gating = layer.gating(x, ops.convert_to_tensor(SEED) if training else None)
    assert all(len(set(row)) == 3 for row in np.array(gating.experts).tolist())
    np.testing.assert_allclose(np.sum(gating.gates, axis=1), 1, rtol=1e-6)
    assert np.all(np.array(gating.gates) > 0) and np.all((np.array(gating.load) >= 0) & (np.array(gating.load) <= 1))
    if not training:
        np.testing.assert_array_equal(np.sum(gating.load, axis=1), 3)


def test_noise_acts_only_in_training_and_depends_on_the_seed(rng):
    layer, x = make(rng), example(rng)
    seeds = [ops.convert_to_tensor(SEED + i) for i in (0, 0, 1)]
    first, repeated, other_seed = (np.array(layer(x, seed=seed, training=True)) for seed in seeds)
    np.testing.assert_array_equal(first, repeated)
    assert np.abs(first - other_seed).max() > 0.01
    noiseless = np.array(layer(x))
    np.testing.assert_array_equal(noiseless, layer(x, seed=seeds[0]))
    np.testing.assert_array_equal(noiseless, make_noiseless(layer)(x, seed=seeds[0], training=True))
    assert np.abs(np.array(layer(x, training=True)) - np.array(layer(x, training=True))).max() > 0.01


def make_noiseless(layer: MixtureOfExperts) -> MixtureOfExperts:
    noiseless = MixtureOfExperts.from_config({**layer.get_config(), "gate_noise": False})
    noiseless.build((None, None, WIDTH))
    gate_kernel, _, *experts = layer.weights
    noiseless.set_weights([gate_kernel, *experts])
    assert len(noiseless.weights) == len(layer.weights) - 1  # The unused kernel of the noise does not exist.
    return noiseless


def test_initially_only_the_noise_selects_experts():
    """Both gate matrices start at zero, so that noise selects all experts about equally often."""
    layer = MixtureOfExperts(EXPERTS, 2, INNER)
    x = np.ones((1, 600, WIDTH), "float32")
    layer(x)
    assert not np.any(layer.gate_kernel) and not np.any(layer.noise_kernel)
    chosen = np.array(layer.gating(x[0], ops.convert_to_tensor(SEED)).experts)
    assert np.bincount(chosen.ravel(), minlength=EXPERTS).min() > 150
    limit = (6 / (WIDTH + INNER)) ** 0.5  # as for one feed-forward network of these widths
    assert 0.9 * limit < np.abs(layer.inner_kernels).max() <= limit
    inner, outer = np.ravel(layer.inner_kernels), np.ravel(layer.outer_kernels)
    assert abs(np.corrcoef(inner, outer)[0, 1]) < 0.2


def gradients(layer, function) -> list[np.ndarray]:
    with tf.GradientTape() as tape:
        loss = function()
    return [
        np.array(tf.convert_to_tensor(g)) for g in tape.gradient(loss, [v.value for v in layer.trainable_variables])
    ]


@pytest.mark.parametrize("k", [1, 3])
def test_gradients_equal_those_of_the_dense_mixture(rng, k):
    """With skipped padding (one product per expert) and in static shapes (blocks), including noise and losses."""
    layer, x = make(rng, k), ops.convert_to_tensor(example(rng)[:, :1])
    rows, seed = ops.convert_to_tensor([0, 1, 2]), ops.convert_to_tensor(SEED)
    direction = ops.convert_to_tensor(rng.standard_normal((3, WIDTH)), "float32")

    def dense():
        gating = layer.gating(x[:, 0], seed * 1664525 + 69069)
        weights = ops.sum(ops.one_hot(gating.experts, EXPERTS) * gating.gates[..., None], axis=1)
        inner = ops.relu(ops.einsum("rd,edf->erf", x[:, 0], layer.inner_kernels) + layer.inner_biases[:, None])
        outputs = ops.einsum("erf,efd->erd", inner, layer.outer_kernels) + layer.outer_biases[:, None]
        usage = ops.stack([weights, gating.load])  # each sentence has one token
        variation = ops.var(usage, axis=2) / ops.mean(usage, axis=2) ** 2
        return ops.sum(direction * ops.einsum("erd,re->rd", outputs, weights)) + 0.01 * ops.sum(variation)

    def sparse(**options):
        outputs, loss = call_with_loss(layer, x, seed=seed, training=True, **options)
        return ops.sum(direction * outputs[:, 0]) + ops.sum(loss)

    expected = gradients(layer, dense)
    assert all(np.abs(gradient).max() > 1e-4 for gradient in expected)
    for options in ({}, {"token_rows": rows}):
        for actual, wanted in zip(gradients(layer, lambda options=options: sparse(**options)), expected, strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-3, atol=1e-5)


def test_padding_affects_neither_tokens_nor_losses(rng):
    """Padding can be computed or skipped, have any content and any length."""
    layer, x = make(rng), example(rng)
    outputs, loss = call_with_loss(layer, x, token_mask=MASK)
    skipped, same_loss = call_with_loss(layer, x, token_rows=ops.convert_to_tensor(ROWS))
    np.testing.assert_allclose(np.array(skipped)[MASK], np.array(outputs)[MASK], atol=1e-6)
    assert not np.any(np.array(skipped)[~MASK])
    np.testing.assert_allclose(same_loss, loss, rtol=1e-6)
    changed = np.pad(np.where(MASK[..., None], x, 9.0).astype("float32"), ((0, 1), (0, 3), (0, 0)))
    wider, wider_loss = call_with_loss(layer, changed, token_mask=np.pad(MASK, ((0, 1), (0, 3))))
    np.testing.assert_allclose(np.array(wider)[:3, :4][MASK], np.array(outputs)[MASK], atol=1e-6)
    np.testing.assert_allclose(wider_loss, np.append(loss, 0), rtol=1e-6)


def test_sentences_are_independent(rng):
    layer, x = make(rng), example(rng)
    batched = call_with_loss(layer, x, token_mask=MASK)
    for sentence in range(3):
        part = slice(sentence, sentence + 1)
        for single, batch_values in zip(call_with_loss(layer, x[part], token_mask=MASK[part]), batched, strict=True):
            np.testing.assert_allclose(single[0], batch_values[sentence], atol=1e-6)


def test_rows_without_a_length_axis_are_sentences_of_one_token(rng):
    layer, x, mask = make(rng), example(rng)[0], np.array([True, True, False, True])
    for token_mask in (None, mask):
        expected = call_with_loss(layer, x[:, None], token_mask=None if token_mask is None else token_mask[:, None])
        outputs, loss = call_with_loss(layer, x, token_mask=token_mask)
        np.testing.assert_allclose(outputs, expected[0][:, 0], atol=1e-6)
        np.testing.assert_allclose(loss, expected[1], rtol=1e-6)
    assert np.all(np.array(loss > 0) == mask)


def test_each_position_only_computes_its_own_experts(rng, monkeypatch):
    """Each token multiplies k rows, for any number of experts."""
    row_counts = []
    grouped_linear = kernels.grouped_linear
    monkeypatch.setattr(
        kernels, "grouped_linear", lambda x, *arguments: row_counts.append(x.shape[0]) or grouped_linear(x, *arguments)
    )
    for experts in (4, 16):
        layer = MixtureOfExperts(experts, 3, INNER)
        layer(example(rng), token_rows=ops.convert_to_tensor(ROWS))
        layer(example(rng)[:1], token_rows=ops.arange(4))
    assert row_counts == [3 * len(ROWS)] * 2 + [3 * 4] * 2 + [3 * len(ROWS)] * 2 + [3 * 4] * 2


@pytest.mark.parametrize("policy", [None, "bfloat16"])
def test_gates_are_exact_in_mixed_precision(rng, mixed_bfloat16, policy):
    layer, x = make(rng, dtype=policy), example(rng)
    gating = layer.gating(ops.cast(x, "bfloat16")[0])
    rounded = np.array(ops.cast(ops.cast(x, "bfloat16"), "float32"), "float64")[0]
    gates, _ = numpy_oracle.gates(layer, rounded)
    np.testing.assert_allclose(np.take_along_axis(gates, np.array(gating.experts), 1), gating.gates, rtol=1e-5)
    outputs, loss = call_with_loss(layer, x, training=True)
    assert keras.backend.standardize_dtype(outputs.dtype) == "bfloat16"
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"


def test_dropout_acts_on_inner_activations(rng):
    layer, x = make(rng, dropout_rate=0.5, gate_noise=False), example(rng)
    seed = ops.convert_to_tensor(SEED)
    noiseless, dropped = (np.array(layer(x, seed=seed, training=training)) for training in (False, True))
    assert np.abs(noiseless - dropped).max() > 0.01
    np.testing.assert_array_equal(dropped, layer(x, seed=seed, training=True))


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_stacks_of_layers_with_experts(rng, stack):
    """Experts replace the feed-forward network, and the losses of the layers are summed."""
    settings: dict[str, Any] = {
        "num_heads": 1,
        "d_key": 4,
        "d_ff": 9,
        "num_experts": 3,
        "experts_per_token": 1,
        "d_expert": 4,
    }
    layer = (Encoder if stack == "encoder" else Decoder)(2, **settings)
    x, other_inputs = example(rng), () if stack == "encoder" else (example(rng), causal_mask(4))
    expected = layer(x, *other_inputs)
    outputs, loss = call_with_loss(layer, x, *other_inputs, token_mask=MASK)
    np.testing.assert_array_equal(outputs, expected)
    assert loss.shape == (3,) and float(ops.min(loss)) > 0
    for stack_layer in layer.layers:
        assert isinstance(stack_layer.feed_forward, MixtureOfExperts) and stack_layer.feed_forward.d_expert == 4
        stack_layer.feed_forward.balance_weight = 0.0
    np.testing.assert_array_equal(call_with_loss(layer, x, *other_inputs)[1], 0)
    without_experts = type(layer)(1, **{**settings, "num_experts": 0})
    assert (
        isinstance(without_experts.layers[0].feed_forward, FeedForward)
        and without_experts(x, *other_inputs).shape == x.shape
    )
    assert float(call_with_loss(without_experts, x, *other_inputs)[1]) == 0
