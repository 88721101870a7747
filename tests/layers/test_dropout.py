"""Dropout depends on its seed, and seeds do not collide."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from t2t_keras.layers import Dropout
from t2t_keras.layers.dropout import fold_in, token_cutoff


def seed(*words: int):
    return ops.convert_to_tensor(words, "int32")


def kept_elements(layer: Dropout, seed_tensor, shape=(100, 100)) -> np.ndarray:
    return np.array(layer(np.ones(shape, "float32"), seed=seed_tensor, training=True)) != 0


def test_dropout_acts_only_in_training(rng):
    x = rng.standard_normal((3, 4)).astype("float32")
    layer = Dropout(0.5)
    for training in (None, False):
        np.testing.assert_array_equal(layer(x, seed=seed(1, 2), training=training), x)
    np.testing.assert_array_equal(Dropout(0.0)(x, training=True), x)
    assert np.any(np.array(layer(x, seed=seed(1, 2), training=True)) == 0)


def test_the_mask_depends_only_on_the_seed():
    first = kept_elements(Dropout(0.3), seed(5, 6))
    Dropout(0.3)(np.ones((3, 3), "float32"), training=True)
    np.testing.assert_array_equal(first, kept_elements(Dropout(0.3), seed(5, 6)))
    layer = Dropout(0.3)
    traced = tf.function(lambda s: layer(tf.ones((100, 100)), seed=s, training=True))
    np.testing.assert_array_equal(first, np.array(traced(seed(5, 6))) != 0)


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9, 0.013, 0.01, 0.001, 0.999])
def test_rate_and_mean(rate):
    shape = (400, 500)
    outputs = np.array(Dropout(rate)(np.ones(shape, "float32"), seed=seed(3, 4), training=True))
    assert len(np.unique(outputs)) == 2
    # Four standard deviations of a share of 200,000 elements, plus the rounding of the rate.
    noise = 4 * (rate * (1 - rate) / outputs.size) ** 0.5
    assert abs(np.mean(outputs == 0) - rate) < noise + 0.02 * min(rate, 1 - rate)
    assert abs(outputs.mean() - 1.0) < noise / (1 - rate)


def test_different_seeds_give_independent_masks():
    masks = {
        words: kept_elements(Dropout(0.5), seed(*words))
        for words in [(1, 2), (1, 3), (2, 2), (2, 3), (0, 0), (-1, 2**31 - 1)]
    }
    for first, second in itertools.combinations(masks.values(), 2):
        assert abs(np.mean(first == second) - 0.5) < 4 * 0.5 / 100


def test_calls_without_a_seed_have_different_masks():
    layer = Dropout(0.5)
    assert not np.array_equal(kept_elements(layer, None), kept_elements(layer, None))
    assert not np.array_equal(kept_elements(Dropout(0.5), None), kept_elements(Dropout(0.5), None))


def test_the_output_has_the_input_dtype_and_the_gradient_the_same_mask():
    x = tf.ones((50, 50), tf.bfloat16)
    layer = Dropout(0.5, dtype="bfloat16")
    with tf.GradientTape() as tape:
        tape.watch(x)
        outputs = layer(x, seed=seed(1, 2), training=True)
    assert outputs.dtype == tf.bfloat16
    np.testing.assert_array_equal(tf.cast(tape.gradient(outputs, x), tf.float32), tf.cast(outputs, tf.float32))


def test_fold_in_returns_int32_and_wraps_around():
    folded = fold_in(seed(2**31 - 1, -(2**31)), 4)
    assert folded.dtype == tf.int32
    expected = [(word * 1664525 + 9 * 69069 + 2**31) % 2**32 - 2**31 for word in (2**31 - 1, -(2**31))]
    assert np.array(folded).tolist() == expected


def test_seeds_of_all_sites_layers_replicas_and_steps_differ():
    """A model folds in the stack, the part, the layer and the site; a trainer the step and the replica."""
    steps = np.random.default_rng(1).integers(-(2**31), 2**31, (200, 2)).astype("int32")
    replicas = [fold_in(steps, replica) for replica in range(8)]
    sites = []
    for replica, stack in itertools.product(replicas, range(2)):
        stack_seeds = fold_in(replica, stack)
        sites.append(fold_in(stack_seeds, 0))
        for layer in range(6):
            layer_seeds = fold_in(fold_in(stack_seeds, 1), layer)
            sites += [fold_in(layer_seeds, site) for site in range(6)]
    seeds = np.concatenate(sites)  # [steps * replicas * sites, 2]
    assert seeds.shape == (200 * 8 * 2 * 37, 2)
    assert len(np.unique(seeds, axis=0)) == len(seeds)


def test_token_cutoff_keeps_padding_and_end_symbols():
    token_ids = np.random.default_rng(0).integers(0, 30, (200, 50)).astype("int32")
    cut = np.array(token_cutoff(token_ids, 0.05, seed(1, 2)))
    is_hidden = cut < 0
    np.testing.assert_array_equal(np.abs(cut), token_ids)
    assert not is_hidden[token_ids <= 1].any()
    assert is_hidden[token_ids > 1].mean() == pytest.approx(0.05, abs=0.01)
    assert (is_hidden != (np.array(token_cutoff(token_ids, 0.05, seed(1, 3))) < 0)).any()
    np.testing.assert_array_equal(token_cutoff(token_ids, 0.0, seed(1, 2)), token_ids)
