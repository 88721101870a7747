"""The expected cost: its estimator against an enumeration, its gradient against the plain formula."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.config import ModelConfig, TransformerConfig
from t2t_keras.losses import loss_sum_and_count
from t2t_keras.models.families import make_model
from t2t_keras.search.random_numbers import sentence_keys
from t2t_keras.training.layout import MatrixLayout
from t2t_keras.training.objectives.objective import Rows
from t2t_keras.training.objectives.risk import Risk, longest
from t2t_keras.training.objectives.stateless_model import Pairs, StatelessModel
from tests.training.plain_gleu import gleu_in_python
from tests.training.tiny_families import tiny_family

TRANSFORMER = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 8, "d_ff": 8, "num_heads": 2}
SOURCE = np.array([[5, 6, 1], [7, 1, 0], [8, 9, 1], [0, 0, 0]], np.int32)
TARGET = np.array([[3, 5, 6, 1], [5, 1, 0, 0], [4, 5, 9, 1], [0, 0, 0, 0]], np.int32)


def make(config: ModelConfig, spread: float = 1.0) -> tuple[keras.Model, StatelessModel, list[tf.Tensor]]:
    """Returns a model with confident predictions and without dropout, and its weights."""
    keras.utils.set_random_seed(3)
    model = make_model(config)
    random = np.random.default_rng(4)
    arrays = [spread * random.normal(size=v.shape).astype(np.float32) for v in model.trainable_variables]
    layout = MatrixLayout([array.shape for array in arrays])
    for variable, array in zip(model.trainable_variables, arrays, strict=True):
        variable.assign(array)
    matrices = [tf.constant(matrix) for matrix in layout.join_arrays(arrays)]
    return model, StatelessModel(model, layout, skip_padding=True, for_cpu=True), matrices


def rows_of(source: np.ndarray, target: np.ndarray, scale: float = 1.0, step: int = 0) -> Rows:
    seed = tf.constant([1, 2], tf.int32)
    return Rows(Pairs(tf.constant(source), tf.constant(target)), tf.constant(scale), seed, tf.constant(step, tf.int64))


def log_probs(model, source: np.ndarray, target: np.ndarray) -> tf.Tensor:
    """Returns the log-probabilities of whole targets, if padding is never drawn: float32 [rows]."""
    logits = model({"source": source, "target": target})
    logits -= 1e9 * tf.one_hot(0, logits.shape[-1])
    chosen = tf.gather(tf.nn.log_softmax(logits), target, batch_dims=2)
    return tf.reduce_sum(tf.where(target != 0, chosen, 0.0), axis=1)


def gradients_of(model, tape: tf.GradientTape, loss: tf.Tensor) -> list[np.ndarray]:
    """Returns dense gradients with respect to all weights."""
    weights = [variable.value for variable in model.trainable_variables]
    gradients = tape.gradient(loss, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return [tf.convert_to_tensor(gradient).numpy() for gradient in gradients]


def assert_close(actual: list[np.ndarray], expected: list[np.ndarray], tolerance: float = 1e-4) -> None:
    """Asserts equality within `tolerance` of the largest gradient."""
    largest = max(np.abs(array).max() for array in expected)
    assert largest > 1e-3
    for gradient, expected_gradient in zip(actual, expected, strict=True):
        np.testing.assert_allclose(gradient, expected_gradient, rtol=tolerance, atol=tolerance * largest)


# All outputs of at most two tokens of a vocabulary of four.
OUTPUTS = np.array([[1, 0], *([word, last] for word in (2, 3) for last in (1, 2, 3))], np.int32)
WORDS, REFERENCE = np.array([[2, 3, 1]], np.int32), np.array([[3, 2, 1]], np.int32)


@pytest.fixture(scope="module")
def small():
    """A model with a vocabulary of four, and the probability of each output."""
    model, weighted, matrices = make(TransformerConfig(vocab_size=4, **TRANSFORMER), spread=0.5)
    probabilities = np.exp(log_probs(model, np.repeat(WORDS, len(OUTPUTS), 0), OUTPUTS))
    assert probabilities.sum() == pytest.approx(1, rel=1e-5) and probabilities.max() < 0.6
    return model, weighted, matrices, probabilities


@pytest.mark.integration
def test_the_estimators_mean_is_the_gradient_of_the_expected_cost(small):
    """Enumerates all candidates of three draws with their probabilities, so that nothing is random."""
    model, weighted, matrices, probabilities = small
    costs = np.array([1 - gleu_in_python(output.tolist(), REFERENCE[0].tolist()) for output in OUTPUTS], np.float32)
    assert len(set(costs.tolist())) >= 4
    with tf.GradientTape() as tape:
        expected_cost = tf.reduce_sum(tf.exp(log_probs(model, np.repeat(WORDS, len(OUTPUTS), 0), OUTPUTS)) * costs)
    expected = gradients_of(model, tape, expected_cost)

    risk, rows = Risk(0.0, 3, 0.1, seed=1), rows_of(WORDS, REFERENCE)
    estimate = tf.function(lambda candidates: risk.of_candidates(weighted, matrices, rows, candidates))
    mean_sums, mean = np.zeros(2), [np.zeros(matrix.shape) for matrix in matrices]
    for choices in itertools.product(range(len(OUTPUTS)), repeat=3):
        sums, gradients = estimate(tf.constant(OUTPUTS[list(choices)][:, np.newaxis]))
        probability = np.prod(probabilities[list(choices)])
        mean_sums += probability * sums.numpy()
        mean = [total + probability * gradient.numpy() for total, gradient in zip(mean, gradients, strict=True)]
    assert_close(weighted.layout.split_arrays([matrix.astype(np.float32) for matrix in mean]), expected)
    tokens = np.count_nonzero(REFERENCE)
    np.testing.assert_allclose(mean_sums, [expected_cost, tokens * (1 - expected_cost)], rtol=1e-4)


def test_samples_have_the_models_probabilities(small):
    _, weighted, matrices, probabilities = small
    keys = sentence_keys(7, tf.constant(WORDS))
    samples = weighted.samples(matrices, tf.constant(WORDS), keys, tf.constant([2]), 4000).numpy()[:, 0]
    counts = np.array([(samples == output).all(axis=1).sum() for output in OUTPUTS])
    assert counts.sum() == 4000
    deviations = np.sqrt(4000 * probabilities * (1 - probabilities))
    assert (np.abs(counts - 4000 * probabilities) < 4 * deviations).all()


@pytest.fixture(scope="module", params=["transformer", "moe_rnn"])
def family(request):
    """One family without a bias of the head and an auxiliary loss, and one with both."""
    return make(tiny_family(request.param, vocab_size=20, dropout_rate=0.0), spread=0.3)


@pytest.mark.integration
def test_the_mixed_loss_is_the_plain_formulas(family):
    """Some of the candidates are truncated, empty or equal; the reference differentiates all logits."""
    model, weighted, matrices = family
    candidates = np.array(
        [
            [[3, 5, 6, 1, 0], [5, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0] * 5],
            [[3, 6, 6, 6, 6], [5, 1, 0, 0, 0], [4, 5, 9, 1, 0], [0] * 5],
            [[2, 7, 1, 0, 0], [8, 9, 9, 1, 0], [5, 9, 4, 9, 1], [0] * 5],
        ],
        np.int32,
    )
    texts = candidates.tolist()
    rewards = np.array(
        [[gleu_in_python(*pair) for pair in zip(samples, TARGET.tolist(), strict=True)] for samples in texts]
    )
    baselines = (rewards.sum(axis=0) - rewards) / 2  # the mean of the other two
    advantages = ((rewards - baselines) / 3).astype(np.float32)
    with tf.GradientTape() as tape:
        states = model.states({"source": SOURCE, "target": TARGET}, seed=tf.constant([1, 2]), training=True)
        likelihood, tokens = loss_sum_and_count(TARGET, model.logits(states.hidden), 0.1)
        likelihood += states.auxiliary_loss
        assert (float(states.auxiliary_loss) > 0.01) == (model.output_head.bias is not None)
        surrogate = -sum(
            tf.reduce_sum(log_probs(model, SOURCE, samples) * advantage)
            for samples, advantage in zip(candidates, advantages, strict=True)
        )
        loss = 0.2 * likelihood + surrogate
        scaled = 0.5 * loss
    expected = gradients_of(model, tape, scaled)
    risk = Risk(0.2, 3, 0.1, seed=1)
    sums, gradients = tf.function(risk.of_candidates)(
        weighted, matrices, rows_of(SOURCE, TARGET, 0.5), tf.constant(candidates)
    )
    assert_close(weighted.layout.split_arrays([matrix.numpy() for matrix in gradients]), expected)
    cost = (1 - rewards.mean(axis=0))[:3].sum()  # The fourth row is not a pair.
    gleu = (rewards.mean(axis=0) * np.count_nonzero(TARGET, axis=1)).sum()
    np.testing.assert_allclose(sums, [0.5 * (0.2 * likelihood + cost), 0.5 * gleu], rtol=1e-5)
    assert tokens == np.count_nonzero(TARGET)


@pytest.fixture(scope="module")
def draw_candidates(family):
    """A compiled `Risk.candidates` of a seed, a source, a target and a step."""
    _, weighted, matrices = family

    def candidates(seed: int):
        risk, ids = Risk(0.1, 4, 0.1, seed), tf.TensorSpec([None, None], tf.int32)
        scale_and_seed = tf.constant(1.0), tf.zeros([2], tf.int32)
        return tf.function(
            lambda source, target, step: risk.candidates(
                weighted, matrices, Rows(Pairs(source, target), *scale_and_seed, step)
            ),
            input_signature=[ids, ids, tf.TensorSpec([], tf.int64)],
            autograph=False,
        )

    functions = {seed: candidates(seed) for seed in (1, 2**32 - 1)}
    return lambda source, target, step=0, seed=1: functions[seed](source, target, np.int64(step)).numpy()


@pytest.mark.quick("transformer")
def test_candidates_are_a_function_of_seed_step_and_sentence(draw_candidates):
    samples = draw_candidates(SOURCE, TARGET)
    np.testing.assert_array_equal(draw_candidates(SOURCE, TARGET), samples)
    # In a different order and with fewer neighbours they are the same, apart from padding.
    order = [2, 0]
    reordered = draw_candidates(SOURCE[order], TARGET[order])
    np.testing.assert_array_equal(reordered, samples[:, order])
    for changes in ({"step": 1}, {"seed": 2**32 - 1}, {"step": 2**20, "seed": 2**32 - 1}):
        assert (draw_candidates(SOURCE, TARGET, **changes)[:, :3] != samples[:, :3]).any(axis=2).mean() > 0.8
    assert (samples[0, :3] != samples[1, :3]).any(axis=1).all()


def test_candidates_end_or_are_cut(draw_candidates):
    """The longest one is a quarter and 5 tokens longer than the reference; a row that is not a pair has none."""
    # --> [samples, rows, length]
    samples = np.concatenate([draw_candidates(SOURCE, TARGET, step) for step in range(20)])
    limits = [longest(int(count)) if count else 0 for count in np.count_nonzero(TARGET, axis=1)]
    assert limits == [10, 7, 10, 0] and samples.shape[2] == 10
    lengths = np.count_nonzero(samples, axis=2)
    for row, limit in enumerate(limits):
        assert lengths[:, row].max() == limit
        for text, length in zip(samples[:, row], lengths[:, row], strict=True):
            assert text[:length].all() and not text[length:].any()  # zeros only at the end
            assert length == limit or list(text[:length]).index(1) == length - 1
    assert draw_candidates(SOURCE[:0], TARGET[:0]).shape == (4, 0, 10)
