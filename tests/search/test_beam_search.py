"""The search against independent references on scripted logits, and corner cases."""

import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.config import DecodeConfig
from t2t_keras.search.beam_search import SearchResult, beam_search
from t2t_keras.search.goal import Goal
from tests.search import reference_search
from tests.search.scripted import NUM_CODES, ScriptedModel
from tests.search.searching import assert_same, hypotheses

EOS = reference_search.EOS


@functools.cache
def compiled(beam: int, alpha: float, vocab: int, num_best: int | None = None, **settings_of_search):
    signature = [tf.TensorSpec([None, NUM_CODES, vocab]), *[tf.TensorSpec([None], tf.int32)] * 2]

    @tf.function(input_signature=signature, autograph=False)
    def run(tables: tf.Tensor, limits: tf.Tensor, min_lengths: tf.Tensor) -> SearchResult:
        settings = DecodeConfig(beam_size=beam, length_penalty=alpha, **settings_of_search)
        cache = ScriptedModel.cache_of(tables, beam)
        return beam_search(ScriptedModel.step, cache, Goal(settings, limits, min_lengths, num_best=num_best))

    return run


def search(
    model: ScriptedModel,
    limits: list[int],
    beam: int,
    alpha: float = 0.6,
    min_lengths: list[int] | None = None,
    **settings_of_search: Any,
) -> SearchResult:
    run = compiled(beam, alpha, model.tables.shape[-1], **settings_of_search)
    result = run(model.tables, limits, np.zeros(len(limits), np.int32) if min_lengths is None else min_lengths)
    return SearchResult(*(part.numpy() for part in result))


@pytest.mark.quick("5-0.6", "2-2.5", "1-0.6")
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.5])
@pytest.mark.parametrize("beam", [1, 2, 5])
def test_equals_reference_beam_search(beam, alpha):
    limits = [6, 1, 5, 12, 3, 8]
    for seed, end_bias in [(1, 0.0), (2, -2.0), (3, 1.5), (4, -6.0)]:
        model = ScriptedModel.random(seed, batch=6, vocab=7, end_bias=end_bias)
        result = search(model, limits, beam, alpha)
        for sentence, limit in enumerate(limits):
            expected = reference_search.beam_search(model.next_log_probs(sentence), limit, beam, alpha)
            assert_same(hypotheses(result, sentence), expected)


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_minimum_length_equals_reference(beam):
    limits, minima = [6, 1, 5, 12, 3, 8], [2, 1, 0, 11, 3, 20]
    for seed in range(4):
        model = ScriptedModel.random(seed, batch=6, vocab=7, end_bias=2.0)
        result = search(model, limits, beam, min_lengths=minima)
        for sentence, (limit, minimum) in enumerate(zip(limits, minima, strict=True)):
            expected = reference_search.beam_search(model.next_log_probs(sentence), limit, beam, 0.6, minimum)
            best_results = hypotheses(result, sentence)
            assert_same(best_results, expected)
            assert all(len(tokens) - (tokens[-1] == EOS) >= min(minimum, limit) for tokens, *_ in best_results)


@pytest.mark.parametrize(
    "settings",
    [{"patience": 0.3}, {"patience": 1.0}, {"patience": 2.0}, {"ends_within_beam": True}],
    ids=lambda settings: "-".join(map(str, *settings.items())),
)
def test_stopping_criteria_equal_reference(settings):
    beam, limit, changed = 4, 30, 0
    options = reference_search.Options(**settings)
    for seed in range(6):
        model = ScriptedModel.random(seed, batch=3, vocab=7)
        result = search(model, [limit] * 3, beam, **settings)
        default_result = search(model, [limit] * 3, beam)
        for sentence in range(3):
            next_log_probs = model.next_log_probs(sentence)
            expected = reference_search.beam_search(next_log_probs, limit, beam, options=options)
            assert_same(hypotheses(result, sentence), expected)
            changed += hypotheses(result, sentence) != hypotheses(default_result, sentence)
    assert changed > 0 or settings == {"patience": 2.0}


@pytest.mark.quick("5-6-0.6")
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.4])
@pytest.mark.parametrize(("vocab", "limit"), [(5, 6), (7, 4)])
def test_wide_beam_finds_every_optimum(vocab, limit, alpha):
    # All candidates of the last step must fit, including those that do not end.
    wide = (vocab - 2) ** (limit - 1) * (vocab - 1)
    for seed in range(3):
        model = ScriptedModel.random(seed, batch=2, vocab=vocab)
        result = search(model, [limit, limit - 1], wide, alpha)
        for sentence, own_limit in enumerate([limit, limit - 1]):
            expected = reference_search.exhaustive_search(model.next_log_probs(sentence), vocab, own_limit, alpha)
            assert_same(hypotheses(result, sentence), expected)


def test_stop_is_exact():
    """Continuing the search to the limit finds no better hypothesis."""
    beam, limit, alpha = 3, 40, 0.8
    stopped_early = 0
    for seed in range(8):
        model = ScriptedModel.random(seed, batch=1, vocab=6, end_bias=0.5)
        result = search(model, [limit], beam, alpha)
        stopped_early += result.token_ids.shape[2] < limit
        unstopped = ScriptedModel(np.concatenate([model.tables, endless_table(6)]))
        longer = search(unstopped, [limit, limit], beam, alpha)
        assert longer.token_ids.shape[2] == limit
        assert_same(hypotheses(longer, 0), hypotheses(result, 0))
    assert stopped_early == 8


def endless_table(vocab: int) -> np.ndarray:
    """Returns the table of a sentence that never ends, so that the whole batch searches to the limit."""
    table = np.zeros((1, NUM_CODES, vocab))
    table[:, :, EOS] = -np.inf
    return table


@pytest.mark.parametrize("beam", [1, 4])
def test_a_batch_equals_single_sentences(beam):
    model = ScriptedModel.random(11, batch=7, vocab=6, end_bias=-1.0)
    limits = [9, 2, 14, 1, 30, 5, 7]
    batched = search(model, limits, beam)
    for sentence, limit in enumerate(limits):
        single = search(model.rows(sentence), [limit], beam)
        steps = single.token_ids.shape[2]
        np.testing.assert_array_equal(batched.token_ids[sentence, :, :steps], single.token_ids[0])
        assert not batched.token_ids[sentence, :, steps:].any()
        for part in ("scores", "log_probs", "lengths"):
            np.testing.assert_array_equal(getattr(batched, part)[sentence], getattr(single, part)[0])


@pytest.mark.parametrize("beam", [1, 3])
def test_active_hypotheses_are_returned_if_none_is_finished(beam):
    model = ScriptedModel(np.concatenate([ScriptedModel.random(5, 2, 12).tables, endless_table(12)]))
    model.tables[0, :, EOS] = -60.0
    result = search(model, [5, 7, 4], beam)
    best = hypotheses(result, 0)[0]
    assert len(best[0]) == 5 and EOS not in best[0]
    assert best[1] == pytest.approx(best[2] / (10 / 6) ** 0.6, rel=1e-6)
    assert_same(
        hypotheses(result, 2), reference_search.beam_search(model.next_log_probs(2), limit=4, beam=beam, alpha=0.6)
    )


def test_ties_are_broken_by_slot_then_token():
    tables = np.zeros((1, NUM_CODES, 6))
    result = search(ScriptedModel(tables), [4], 3, alpha=0.0)
    expected = reference_search.beam_search(ScriptedModel(tables).next_log_probs(0), limit=4, beam=3, alpha=0.0)
    assert_same(hypotheses(result, 0), expected)
    assert [tokens for tokens, *_ in expected] == [(1,), (2, 1), (3, 1)]


def test_padding_has_probability_but_is_never_chosen():
    model = ScriptedModel.random(9, batch=1, vocab=5)
    model.tables[:, :, reference_search.PAD] = 20.0
    result = search(model, [3], 2)
    expected = reference_search.beam_search(model.next_log_probs(0), limit=3, beam=2, alpha=0.6)
    assert_same(hypotheses(result, 0), expected)
    assert expected[0][2] < -10, "scores include the probability of padding"


@pytest.mark.parametrize(("batch", "limits"), [(0, []), (2, [0, 0])])
def test_empty_batches_and_limits_of_zero(batch, limits):
    result = search(ScriptedModel.random(1, batch, vocab=5), np.zeros(batch, np.int32), 3)
    assert result.token_ids.shape == (batch, 3, 0)


def test_one_trace_serves_every_batch_size_and_limit():
    run = compiled(3, 0.6, 7)
    for batch, limit in [(1, 3), (5, 9), (2, 1)]:
        run(ScriptedModel.random(1, batch, vocab=7).tables, [limit] * batch, [0] * batch)
    assert run.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("beam", [1, 3])
def test_finished_sentences_are_removed_from_the_batch(beam):
    model = ScriptedModel.random(14, batch=8, vocab=12, end_bias=-40.0)
    limits = [2, 2, 9, 2, 6, 2, 2, 9]
    rows = []

    def record_and_step(token_ids, cache):
        sizes = [len(cache.source[0]), len(cache.per_hypothesis), len(cache.per_sentence)]
        assert sizes == [len(token_ids) // beam] * 3
        rows.append(len(token_ids) // beam)
        return model.step(token_ids, cache)

    result = beam_search(record_and_step, model.start_cache(beam), Goal(DecodeConfig(beam_size=beam), limits))
    assert rows == [8, 8, 3, 3, 3, 3, 2, 2, 2]
    for sentence, limit in enumerate(limits):
        expected = reference_search.beam_search(model.next_log_probs(sentence), limit, beam, alpha=0.6)
        assert_same(hypotheses(SearchResult(*(part.numpy() for part in result)), sentence), expected)


@pytest.mark.parametrize("beam", [1, 3])
def test_nan_logits_give_no_hypothesis(beam):
    """The other sentences of the batch are not affected."""
    model = ScriptedModel.random(15, batch=2, vocab=7)
    expected = reference_search.beam_search(model.next_log_probs(1), limit=4, beam=beam, alpha=0.6)
    model.tables[0] = np.nan
    result = search(model, [6, 4], beam)
    assert not result.lengths[0].any() and not result.token_ids[0].any()
    assert_same(hypotheses(result, 1), expected)


@pytest.mark.parametrize("num_best", [1, 2, 4])
def test_fewer_results_are_the_same_and_found_earlier(num_best):
    limits = [12, 3, 9, 12, 0, 10]
    stops_earlier = False
    for seed, end_bias in [(1, 0.0), (2, -2.0), (3, 1.5), (4, -6.0), (5, 3.0)]:
        model = ScriptedModel.random(seed, batch=6, vocab=7, end_bias=end_bias)
        all_results = search(model, limits, 5)
        best_results = search(model, limits, 5, num_best=num_best)
        steps = best_results.token_ids.shape[2]
        assert best_results.scores.shape == (6, num_best)
        for part_of_best, part_of_all in zip(best_results[1:], all_results[1:], strict=True):
            np.testing.assert_allclose(part_of_best, part_of_all[:, :num_best], rtol=1e-6)
        np.testing.assert_array_equal(best_results.token_ids, all_results.token_ids[:, :num_best, :steps])
        stops_earlier |= steps < all_results.token_ids.shape[2]
    assert stops_earlier


@pytest.mark.parametrize("minimum", [0, 3])
def test_empty_slots_do_not_count_as_finished(minimum):
    options = reference_search.Options(patience=1.0, min_length=minimum)
    for seed in range(8):
        model = ScriptedModel.random(seed, batch=3, vocab=4, end_bias=1.0)
        result = search(model, [12] * 3, 5, patience=1.0, min_lengths=[minimum] * 3)
        for row in range(3):
            expected = reference_search.beam_search(model.next_log_probs(row), 12, 5, options=options)
            assert_same(hypotheses(result, row), expected)


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("normalization", ["gnmt", "average", "none"])
def test_a_skipped_sentence_has_score_0(normalization, beam):
    model = ScriptedModel.random(10, batch=2, vocab=5)
    goal = Goal(DecodeConfig(beam_size=beam, length_normalization=normalization), [0, 4])
    best_results = beam_search(ScriptedModel.step, model.start_cache(beam), goal)
    assert best_results.scores[0, 0] == 0 and np.isfinite(best_results.scores[1, 0])
