"""The loss compared with a dense distribution in NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.losses import PairTerms, SmoothedCrossEntropy, loss_sum_and_count, pair_losses, token_losses

VOCAB = 7
TARGETS = np.array([[3, 6, 1, 0], [2, 1, 0, 0]])


@pytest.fixture
def logits():
    return 3.0 * np.random.default_rng(3).standard_normal((2, 4, VOCAB)).astype("float32")


def dense_cross_entropy(distribution: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """-sum over the vocabulary of p log q, in float64."""
    logits = logits.astype("float64")
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -(distribution * log_probs).sum(-1)


def smoothed(epsilon: float) -> np.ndarray:
    return (1 - epsilon) * np.eye(VOCAB)[TARGETS] + epsilon / VOCAB


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5])
def test_token_losses_equal_the_dense_formula(logits, epsilon):
    losses = token_losses(TARGETS, logits, epsilon)
    assert losses.dtype == tf.float32
    np.testing.assert_allclose(losses, dense_cross_entropy(smoothed(epsilon), logits), rtol=1e-5)


def test_t2t_smoothing_equals_ours_with_a_different_epsilon(logits):
    """T2T assigns exactly 1 - epsilon to the target, and epsilon / (vocab - 1) to each other entry."""
    epsilon = 0.1
    t2t = np.full((2, 4, VOCAB), epsilon / (VOCAB - 1))
    np.put_along_axis(t2t, TARGETS[..., None], 1 - epsilon, -1)
    losses = token_losses(TARGETS, logits, epsilon * VOCAB / (VOCAB - 1))
    np.testing.assert_allclose(losses, dense_cross_entropy(t2t, logits), rtol=1e-5)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_gradient_is_probabilities_minus_target(logits, epsilon):
    logits = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = tf.reduce_sum(token_losses(TARGETS, logits, epsilon))
    np.testing.assert_allclose(tape.gradient(loss, logits), tf.nn.softmax(logits) - smoothed(epsilon), atol=1e-6)


def test_large_logits_do_not_overflow():
    logits = np.array([[1e4, -1e4, 0.0]], "float32")
    np.testing.assert_allclose(token_losses(np.array([0]), logits, 0.0), [0.0], atol=1e-3)
    np.testing.assert_allclose(token_losses(np.array([1]), logits, 0.0), [2e4], rtol=1e-6)


def test_bfloat16_logits_are_summed_in_float32(logits):
    rounded = tf.cast(logits, tf.bfloat16)
    expected = token_losses(TARGETS, tf.cast(rounded, tf.float32), 0.1)
    np.testing.assert_array_equal(token_losses(TARGETS, rounded, 0.1), expected)


def test_sum_and_count_exclude_padding(logits):
    total, count = loss_sum_and_count(TARGETS, logits, 0.1)
    assert float(count) == 5.0
    expected = dense_cross_entropy(smoothed(0.1), logits)[TARGETS != 0].sum()
    assert float(total) == pytest.approx(expected, rel=1e-5)
    changed = logits.copy()
    changed[TARGETS == 0] += 100.0 * np.arange(VOCAB)
    assert float(loss_sum_and_count(TARGETS, changed, 0.1)[0]) == float(total)


def test_empty_batch(logits):
    total, count = loss_sum_and_count(np.zeros((2, 4), "int32"), logits, 0.1)
    assert (float(total), float(count)) == (0.0, 0.0)
    assert float(SmoothedCrossEntropy(0.1)(np.zeros((2, 4), "int32"), logits)) == 0.0


@pytest.mark.parametrize("dtype", ["int32", "float32"])  # Keras may pass targets as floats
def test_keras_loss_is_the_mean_over_tokens(logits, dtype):
    total, count = loss_sum_and_count(TARGETS, logits, 0.1)
    loss = SmoothedCrossEntropy(0.1)(TARGETS.astype(dtype), logits)
    assert float(loss) == pytest.approx(float(total) / float(count), rel=1e-6)


def test_mask_of_the_logits_is_ignored():
    ids = keras.Input([None], dtype="int32")
    states = keras.layers.LSTM(4, return_sequences=True)(keras.layers.Embedding(8, 8, mask_zero=True)(ids))
    model = keras.Model(ids, keras.layers.Dense(8, kernel_initializer="zeros")(states))
    model.compile("sgd", SmoothedCrossEntropy())
    text = np.array([[3, 4, 0, 0, 0, 0, 0, 0]])
    assert model.evaluate(text, text, verbose=0) == pytest.approx(np.log(8))


def test_weighted_mean_is_over_tokens(logits):
    losses, real = np.asarray(token_losses(TARGETS, logits, 0.1)), TARGETS != 0
    loss = SmoothedCrossEntropy(0.1, reduction="mean_with_sample_weight")
    assert float(loss(TARGETS, logits)) == pytest.approx(losses[real].mean(), rel=1e-6)
    weights = np.array([0.5, 3.0], "float32")
    expected = np.average(losses, weights=weights[:, None] * real)
    assert float(loss(TARGETS, logits, weights)) == pytest.approx(expected, rel=1e-6)


def test_keras_loss_can_be_serialized():
    loss = keras.losses.deserialize(keras.losses.serialize(SmoothedCrossEntropy(0.2, name="mine")))
    assert isinstance(loss, SmoothedCrossEntropy)
    assert (loss.label_smoothing, loss.name) == (0.2, "mine")


@pytest.mark.parametrize("epsilon", [-0.1, 1.0, "0.1"])
def test_smoothing_outside_0_to_1_is_rejected(epsilon):
    with pytest.raises(ValueError, match=rf"`label_smoothing` must be a number in \[0, 1\), got {epsilon!r}"):
        SmoothedCrossEntropy(epsilon)


def test_sample_weights_apply_to_all_tokens():
    logits = np.random.default_rng(3).normal(size=(2, 3, 5)).astype("float32")
    targets, weights = np.array([[2, 1, 0], [4, 3, 1]]), np.array([0.5, 3.0], "float32")
    losses = np.asarray(token_losses(targets, logits, 0.1)) * (targets != 0)
    loss = SmoothedCrossEntropy(0.1)
    assert float(loss(targets, logits)) == pytest.approx(losses.sum() / 5)
    assert float(loss(targets, logits, weights)) == pytest.approx((losses * weights[:, None]).sum() / 5)
    places = np.array([[1.0, 0.0, 7.0], [0.0, 2.0, 1.0]], "float32")
    assert float(loss(targets, logits, places)) == pytest.approx((losses * places).sum() / 5)


def test_low_precision_dtypes_are_rejected():
    with pytest.raises(ValueError, match="`dtype` must be float32 or float64, got bfloat16"):
        SmoothedCrossEntropy(dtype="bfloat16")


@pytest.mark.parametrize("kind", ["simcut", "rdrop"])
def test_pair_losses_equal_the_published_formulas(kind, logits):
    """SimCut: CE1 + alpha KL12. R-Drop: half of CE1 + CE2 + alpha / 2 (KL12 + KL21)."""
    others = 2.0 * np.random.default_rng(4).standard_normal(logits.shape).astype("float32")
    p1, p2 = (np.exp(each) / np.exp(each).sum(-1, keepdims=True) for each in (logits.astype("float64"), others))
    kl12, kl21 = (p1 * np.log(p1 / p2)).sum(-1), (p2 * np.log(p2 / p1)).sum(-1)
    ce1, ce2 = (dense_cross_entropy(smoothed(0.1), each) for each in (logits, others))
    expected = ce1 + 3.0 * kl12 if kind == "simcut" else (ce1 + ce2 + 1.5 * (kl12 + kl21)) / 2
    actual = pair_losses(TARGETS, (logits, others), getattr(PairTerms, kind)(3.0), 0.1)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
