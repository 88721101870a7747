"""Sampling against a reference with the same uniform numbers, frequencies, and corner cases."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.config import DecodeConfig
from t2t_keras.search.beam_search import SearchResult
from t2t_keras.search.goal import Goal
from t2t_keras.search.random_numbers import sentence_keys, uniform
from t2t_keras.search.sampling import draw, sample
from tests.search import reference_search
from tests.search.reference_search import EOS, Options
from tests.search.scripted import NUM_CODES, ScriptedModel
from tests.search.searching import hypotheses, padded, rules_of

KEYS = np.array(sentence_keys(3, tf.reshape(tf.range(2, 8), [6, 1])))
LIMITS = [6, 1, 5, 6, 0, 4]
PREFIXES = [(2, 3), (5,), (), (6, 6, 6, 6), (4, 2, 4), (0, 3)]


def samples(count: int = 1, **settings) -> DecodeConfig:
    return DecodeConfig(beam_size=count, sampling=True, **settings)


@functools.cache
def compiled(sampling: DecodeConfig, vocab: int, no_repeat: int = 0, excluded: tuple = ()):
    ids = [tf.TensorSpec(shape, tf.int32) for shape in ([None], [None, 2], [None], [None, None])]

    @tf.function(input_signature=[tf.TensorSpec([None, NUM_CODES, vocab]), *ids], autograph=False)
    def run(tables, limits, keys, min_lengths, prefixes):
        cache = ScriptedModel.cache_of(tables, sampling.beam_size)
        goal = Goal(sampling, limits, min_lengths, rules_of(no_repeat, excluded), prefixes)
        return sample(ScriptedModel.step, cache, goal, keys)

    return run


def run(
    model: ScriptedModel, limits: list[int], keys: np.ndarray, sampling: DecodeConfig, options: Options, prefixes=None
) -> SearchResult:
    function = compiled(sampling, model.tables.shape[-1], options.no_repeat, options.excluded)
    rows = padded(prefixes or [()] * len(limits), (max(map(len, prefixes or [()])),))
    return SearchResult(
        *(part.numpy() for part in function(model.tables, limits, keys, [options.min_length] * len(limits), rows))
    )


def reference_token(step: np.ndarray, allowed: list[int], numbers: np.ndarray, sampling: DecodeConfig) -> int:
    """Returns the token that three numbers select in a cube: they select a slice, a column and a token."""
    weights = np.zeros(len(step))
    weights[allowed] = np.exp(step[allowed] / sampling.temperature)
    order = np.arange(len(step))
    if sampling.top_k or sampling.top_p < 1:
        order = np.argsort(-weights, kind="stable")[: sampling.top_k or None]
    if sampling.top_p < 1:
        before = np.cumsum(weights[order]) - weights[order]
        weights[order[before >= sampling.top_p * weights[order].sum()]] = 0
    side = next(side for side in itertools.count(1) if side**3 >= len(order))
    cube = np.zeros(side**3)
    cube[: len(order)] = weights[order]
    place: tuple[int, ...] = ()
    for number in numbers:
        edges = np.cumsum(cube.reshape([side] * 3)[place].reshape(side, -1).sum(axis=1))
        place = (*place, int(np.searchsorted(edges, number * edges[-1], side="right")))
    return int(order[np.ravel_multi_index(place, [side] * 3)])


def reference_sample(
    next_log_probs, limit: int, uniforms: np.ndarray, sampling: DecodeConfig, options: Options
) -> tuple:
    tokens: tuple[int, ...] = ()
    log_prob = 0.0
    while len(tokens) < limit and tokens[-1:] != (EOS,):
        step = next_log_probs(tokens)
        allowed = [t for t in range(len(step)) if reference_search.may_follow(tokens, t, options)]
        token = reference_token(step, allowed, uniforms[len(tokens)], sampling)
        tokens, log_prob = (*tokens, token), log_prob + step[token]
    return tokens, log_prob / reference_search.penalty(len(tokens), 0.6), log_prob


# Each setting runs alternately with and without the options.
@pytest.mark.quick(*(f"options{number % 2}-sampling{number}" for number in range(6)))
@pytest.mark.parametrize(
    "sampling",
    [
        samples(1),
        samples(4, temperature=0.5),
        samples(3, temperature=3.0, top_k=2),
        samples(3, top_p=0.6),
        samples(2, temperature=1.5, top_k=4, top_p=0.8),
        samples(2, top_k=99),
    ],
)
@pytest.mark.parametrize("options", [Options(), Options(no_repeat=2, excluded=((3,), (2, 4)), min_length=3)])
def test_equals_reference(sampling, options):
    for seed, prefixes in [(1, None), (2, PREFIXES)]:
        model = ScriptedModel.random(seed, batch=6, vocab=7)
        result = run(model, LIMITS, KEYS, sampling, options, prefixes)
        uniforms = uniform(KEYS, tf.constant(6), 3 * sampling.beam_size).numpy()
        for sentence, limit in enumerate(LIMITS):
            for number in range(sampling.beam_size):
                sentence_options = Options(**{**vars(options), "prefix": prefixes[sentence] if prefixes else ()})
                draws = uniforms[:, sentence, 3 * number : 3 * number + 3]
                expected = reference_sample(model.next_log_probs(sentence), limit, draws, sampling, sentence_options)
                length = result.lengths[sentence, number]
                assert tuple(result.token_ids[sentence, number, :length].tolist()) == expected[0]
                assert not result.token_ids[sentence, number, length:].any()
                actual = result.scores[sentence, number], result.log_probs[sentence, number]
                np.testing.assert_allclose(actual, expected[1:], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("sampling", "possible"),
    [(samples(temperature=0.7), [1, 2, 3, 4, 5, 6]), (samples(top_k=3), [2, 3, 4]), (samples(top_p=0.75), [2, 3])],
)
def test_frequencies(sampling, possible):
    probabilities = np.array([0.0, 0.05, 0.4, 0.4, 0.1, 0.03, 0.02])
    with np.errstate(divide="ignore"):
        logits = np.log(probabilities).astype(np.float32)
    count = 20_000
    uniforms = tf.reshape(uniform(tf.constant([[9, 9]]), tf.constant(count), 3), [-1, 3])
    counts = np.bincount(draw(tf.tile(logits[np.newaxis], [count, 1]), uniforms, sampling), minlength=7)
    weights = np.zeros(7)
    weights[possible] = probabilities[possible] ** (1 / sampling.temperature)
    expected = count * weights / weights.sum()
    assert not counts[expected == 0].any()
    statistic = ((counts - expected)[expected > 0] ** 2 / expected[expected > 0]).sum()
    assert statistic < 20.5, "chi-square, at most 5 degrees of freedom, p = 0.001"


def test_the_largest_number_draws_the_last_possible_token():
    logits = np.float32([[-np.inf, 0.0, 0.0, -np.inf], [-np.inf] * 4, [np.nan] * 4])
    highest = np.full([3, 3], 1 - 2**-24, np.float32)
    np.testing.assert_array_equal(draw(logits, highest, samples()), [2, 0, 0])
    np.testing.assert_array_equal(draw(logits, np.zeros([3, 3], np.float32), samples(top_p=0.9)), [1, 0, 0])


def test_corner_cases():
    model = ScriptedModel.random(10, batch=2, vocab=3)
    model.tables[0] = np.nan
    result = run(model, [4, 4], KEYS[:2], samples(2), Options())
    assert not result.lengths[0].any() and np.isneginf(result.scores[0]).all()
    assert all(len(tokens) in range(1, 5) for tokens, *_ in hypotheses(result, 1))
    nothing_left = run(model.rows(1), [4], KEYS[:1], samples(2), Options(no_repeat=1, min_length=3))
    assert not nothing_left.lengths.any() and not nothing_left.token_ids.any()
    assert run(model.rows(), [], KEYS[:0], samples(2), Options()).token_ids.shape == (0, 2, 0)


def test_constraints_and_beam_search_settings_are_rejected():
    model = ScriptedModel.random(1, batch=1, vocab=5)
    with pytest.raises(ValueError, match="constraints .* sampling"):
        Goal(samples(), [3], constraints=[[[2]]])
    with pytest.raises(ValueError, match=r"settings\.sampling must be true"):
        sample(model.step, model.start_cache(1), Goal(DecodeConfig(beam_size=1), [3]), KEYS[:1])


def test_all_bits_of_a_seed_matter():
    ids = tf.constant([[5, 6, 1]] * 2)
    keys = sentence_keys(tf.constant([1, 1 + 2**32], tf.int64), ids).numpy()
    assert (keys[0] != keys[1]).any()
    np.testing.assert_array_equal(keys[1], sentence_keys(1 + 2**32, ids)[0])


def test_the_requested_number_of_samples_is_returned():
    model, limits = ScriptedModel.random(9, batch=6, vocab=7), tf.constant(LIMITS)
    all_samples, first = (
        sample(model.step, model.start_cache(5), Goal(samples(5), limits, num_best=count), KEYS) for count in (None, 1)
    )
    assert first.lengths.shape == (6, 1)
    for part_of_first, part_of_all in zip(first, all_samples, strict=True):
        np.testing.assert_array_equal(part_of_first, part_of_all[:, :1])


def test_large_logits_at_a_low_temperature():
    """exp(40 / 0.1) exceeds the range of float32."""
    logits = tf.constant([[0.0, -5.0, 40.0, 39.9, -40.0]] * 2)
    uniforms = tf.constant([[0.0] * 3, [0.999] * 3])
    assert draw(logits, uniforms, DecodeConfig(sampling=True, temperature=0.1)).numpy().tolist() == [2, 3]
