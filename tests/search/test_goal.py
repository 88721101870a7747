"""Every option of the search against the NumPy reference, on scripted logits."""

import dataclasses

import numpy as np
import pytest
from hypothesis import strategies as st

from t2t_keras.config import DecodeConfig
from t2t_keras.search.beam_search import beam_search
from t2t_keras.search.goal import Goal
from t2t_keras.search.restrictions.rules import ExcludedPhrases, NoRepeatNgram
from tests.search import reference_search
from tests.search.reference_search import EOS, Options, contains, meets
from tests.search.scripted import NUM_CODES, ScriptedModel
from tests.search.searching import assert_same, compiled, hypotheses, search

LIMITS = [6, 1, 5, 6, 3, 4]
EXCLUDED = ((3,), (2, 4), (5, 6, 2), (4, 4))
PREFIXES = [(2, 3), (5,), (), (6, 6, 6, 6), (4, 2, 4), (0, 3)]
PHRASES = [((2, 3), (3, 4)), ((5,),), (), ((6, 2, 6), (2,)), ((4, 4, 5, 2),), ((3, 3), (2, 3, 3))]
CONSTRAINTS = [tuple((phrase,) for phrase in phrases) for phrases in PHRASES]
ALTERNATIVES = [
    (((2, 3), (3, 4, 2), (5,)), ((4, 6), (4,))),
    (((3,), (2,)),),
    (),
    (((6, 2, 6), (6, 2)), ((2,), (3, 3, 3))),
    (((4, 5), (4, 5, 6), (3, 5)),),
    (((3, 3), (2, 3, 3)), ((3, 3, 2),)),
]
JOINING = frozenset({5, 6})  # continue a word


def reference(model: ScriptedModel, sentence: int, limit: int, beam: int, options: Options) -> list[tuple]:
    options = dataclasses.replace(options, coverage=model.coverage(sentence))
    return reference_search.beam_search(model.next_log_probs(sentence), limit, beam, options=options)


def assert_equals_reference(
    beam: int, sentences: list[Options], seeds=range(4), end_bias: float = 0.0
) -> list[list[tuple]]:
    """Compares each sentence with the reference; returns the hypotheses."""
    found_hypotheses = []
    for seed in seeds:
        model = ScriptedModel.random(seed, batch=len(sentences), vocab=7, end_bias=end_bias)
        result = search(model, LIMITS, beam, sentences)
        for sentence, (limit, options) in enumerate(zip(LIMITS, sentences, strict=True)):
            found_hypotheses.append(hypotheses(result, sentence))
            assert_same(found_hypotheses[-1], reference(model, sentence, limit, beam, options))
    return found_hypotheses


def assert_batch_equals_single_sentences(beam: int, sentences: list[Options]) -> None:
    """A batch gives the same as single sentences, up to rounding, since kernels round differently by position."""
    model = ScriptedModel.random(21, batch=len(sentences), vocab=7)
    batched = search(model, LIMITS, beam, sentences)
    has_prefix_and_constraints = [(bool(o.prefix), bool(o.constraints)) for o in sentences]
    for sentence, (limit, options) in enumerate(zip(LIMITS, sentences, strict=True)):
        if has_prefix_and_constraints[sentence] != tuple(map(any, zip(*has_prefix_and_constraints, strict=True))):
            continue  # would run a different search, without prefixes or constraints
        single = search(model.rows(sentence), [limit], beam, [options])
        steps = single.token_ids.shape[2]
        np.testing.assert_array_equal(batched.token_ids[sentence, :, :steps], single.token_ids[0])
        np.testing.assert_array_equal(batched.lengths[sentence], single.lengths[0])
        for part in ("scores", "log_probs"):
            np.testing.assert_allclose(getattr(batched, part)[sentence], getattr(single, part)[0], rtol=1e-6)


@pytest.mark.quick("options4-2", "options0-5", "options1-1", "options2-2", "options3-2")
@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize(
    "options",
    [
        Options(no_repeat=1),
        Options(no_repeat=2, min_length=4),
        Options(no_repeat=3, min_length=5),
        Options(excluded=EXCLUDED),
        Options(excluded=EXCLUDED, no_repeat=2, min_length=2),
    ],
)
def test_rules(beam, options):
    for found_hypotheses in assert_equals_reference(beam, [options] * len(LIMITS), seeds=range(2)):
        for tokens, *_ in found_hypotheses:
            assert not any(contains(tokens, phrase) for phrase in options.excluded)
            n = options.no_repeat
            grams = [tokens[i : i + n] for i in range(len(tokens) - n + 1)] if n else []
            assert len(grams) == len(set(grams))


@pytest.mark.parametrize("beam", [1, 4])
def test_prefixes(beam):
    sentences = [Options(prefix=prefix) for prefix in PREFIXES]
    found_hypotheses = assert_equals_reference(beam, sentences)
    for index, sentence_hypotheses in enumerate(found_hypotheses):
        prefix, limit = PREFIXES[index % len(PREFIXES)], LIMITS[index % len(PREFIXES)]
        assert sentence_hypotheses
        for tokens, *_ in sentence_hypotheses:
            assert all(a in (0, b) for a, b in zip(prefix[:limit], tokens, strict=False))


def test_a_prefix_overrides_rules_and_the_minimum_length():
    sentences = [Options(prefix=prefix, excluded=EXCLUDED, no_repeat=2, min_length=3) for prefix in PREFIXES]
    assert_equals_reference(3, sentences)
    assert_batch_equals_single_sentences(3, sentences)


@pytest.mark.quick("0.0-2")
@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("end_bias", [0.0, 2.0])
def test_constraints(beam, end_bias):
    sentences = [Options(constraints=phrases) for phrases in CONSTRAINTS]
    for index, found_hypotheses in enumerate(assert_equals_reference(beam, sentences, end_bias=end_bias)):
        phrases, limit = PHRASES[index % len(LIMITS)], LIMITS[index % len(LIMITS)]
        if sum(map(len, phrases)) <= limit:
            assert found_hypotheses
            assert all(contains(tokens, phrase) for tokens, *_ in found_hypotheses for phrase in phrases)


@pytest.mark.quick("joining1-2")
@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("joining", [frozenset(), JOINING])
def test_alternatives(beam, joining):
    sentences = [Options(constraints=constraints, continuations=joining) for constraints in ALTERNATIVES]
    for index, found_hypotheses in enumerate(assert_equals_reference(beam, sentences)):
        constraints, limit = ALTERNATIVES[index % len(LIMITS)], LIMITS[index % len(LIMITS)]
        if sum(min(map(len, phrases)) for phrases in constraints) < limit and not joining:
            assert found_hypotheses
            assert all(meets(tokens, phrases, joining) for tokens, *_ in found_hypotheses for phrases in constraints)
    assert_batch_equals_single_sentences(beam, sentences)


def test_a_phrase_within_a_longer_word_does_not_count():
    model = ScriptedModel.random(1, batch=1, vocab=7)
    model.tables[:, :, 6] += 20  # The model continues every word.
    options = Options(constraints=(((3,),), ((4, 6),)), continuations=JOINING)
    ((tokens, *_), *_) = hypotheses(search(model, [12], 2, [options]), 0)
    text = "".join(" abc+*"[token - 1] for token in tokens[:-1])
    words = text.replace("a", " a").replace("b", " b").replace("c", " c").split()
    assert {"b", "c*"} <= set(words), text


word = st.tuples(st.integers(2, 4), st.lists(st.integers(2, 6), max_size=2)).map(lambda parts: (parts[0], *parts[1]))


phrase = st.lists(st.integers(2, 6), min_size=1, max_size=3).map(tuple)


@pytest.mark.quick("1-none", "4-average")
@pytest.mark.parametrize("normalization", ["average", "none"])
@pytest.mark.parametrize("beam", [1, 4])
def test_length_normalizations(normalization, beam):
    assert_equals_reference(beam, [Options(normalization=normalization)] * len(LIMITS))
    model = ScriptedModel.random(5, batch=1, vocab=6)
    options = Options(normalization=normalization)
    wide = search(model, [4], 5 * 4**3, [options])
    expected = reference_search.exhaustive_search(model.next_log_probs(0), 6, 4, options=options)
    assert_same(hypotheses(wide, 0), expected)


@pytest.mark.quick("4-2-0.7-0.0", "6-2-0.5-0.5")
@pytest.mark.parametrize(
    ("beam", "num_groups", "strength", "patience"),
    [(4, 2, 0.0, 0.0), (4, 2, 0.7, 0.0), (6, 3, 2.0, 0.0), (3, 3, 1.3, 0.0), (6, 2, 0.5, 0.5)],
)
def test_groups(beam, num_groups, strength, patience):
    options = Options(num_groups=num_groups, strength=strength, patience=patience)
    assert_equals_reference(beam, [options] * len(LIMITS))
    assert_equals_reference(beam, [dataclasses.replace(options, min_length=8)] * len(LIMITS), seeds=range(2))
    assert_batch_equals_single_sentences(beam, [options] * len(LIMITS))


def test_groups_with_rules_prefixes_and_coverage():
    common = {"num_groups": 2, "strength": 0.6, "no_repeat": 2, "coverage_penalty": 0.4, "normalization": "average"}
    assert_equals_reference(4, [Options(prefix=prefix, **common) for prefix in PREFIXES])


@pytest.mark.quick("0.2-2")
@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("penalty", [0.2, 2.0])
def test_coverage_penalty(beam, penalty):
    options = Options(coverage_penalty=penalty)
    assert_equals_reference(beam, [options] * len(LIMITS))
    assert_equals_reference(beam, [dataclasses.replace(options, min_length=8)] * len(LIMITS), seeds=range(2))
    assert_batch_equals_single_sentences(beam, [options] * len(LIMITS))


@pytest.mark.parametrize("limit", [4, 3])
def test_wide_beam_finds_every_optimum(limit):
    options = Options(coverage_penalty=0.8, excluded=((3, 2), (4,)), no_repeat=2)
    for seed in range(3):
        model = ScriptedModel.random(seed, batch=1, vocab=6)
        options = dataclasses.replace(options, coverage=model.coverage(0))
        expected = reference_search.exhaustive_search(model.next_log_probs(0), 6, limit, options=options)
        assert_same(hypotheses(search(model, [limit], 200, [options]), 0), expected)


@pytest.mark.parametrize(
    "options", [Options(coverage_penalty=1.0), Options(normalization="average"), Options(num_groups=3, strength=0.5)]
)
def test_stop_is_exact(options):
    """Continuing the search to the limit finds no better hypothesis."""
    for seed in range(4):
        model = ScriptedModel.random(seed, batch=1, vocab=6, end_bias=0.5)
        endless = np.zeros((1, NUM_CODES, 6), np.float32)
        endless[:, :, EOS] = -np.inf
        result = search(model, [30], 3, [options])
        longer = search(ScriptedModel(np.concatenate([model.tables, endless])), [30, 30], 3, [options] * 2)
        assert longer.token_ids.shape[2] == 30
        assert result.token_ids.shape[2] < 30 or options.normalization == "average", "the search did not stop early"
        assert_same(hypotheses(longer, 0), hypotheses(result, 0))


ALL_OPTIONS = [
    [Options(no_repeat=2, prefix=(3,), constraints=(((2,),),), coverage_penalty=0.1)],
    [Options(num_groups=2, strength=0.5, excluded=((2, 2),), prefix=(4,))],
]


@pytest.mark.quick("options0")
@pytest.mark.parametrize("options", ALL_OPTIONS)
def test_corner_cases(options):
    for beam, vocab in [(12, 5), (2, 5)]:
        model = ScriptedModel.random(6, batch=1, vocab=vocab)
        for limit in (0, 1, 4):
            result = search(model, [limit], beam, options)
            if limit:
                assert_same(hypotheses(result, 0), reference(model, 0, limit, beam, options[0]))
            else:
                assert not result.lengths.any()
        model.tables[0, 0, EOS] = 60.0
        assert_same(hypotheses(search(model, [3], beam, options), 0), reference(model, 0, 3, beam, options[0]))


@pytest.mark.parametrize("options", ALL_OPTIONS)
def test_nan_logits_do_not_affect_other_sentences(options):
    model = ScriptedModel.random(7, batch=2, vocab=5)
    expected = reference(model, 1, 5, 12, options[0])
    model.tables[0] = np.nan
    result = search(model, [6, 5], 12, options * 2)
    assert not result.lengths[0].any()
    assert_same(hypotheses(result, 1), expected)


def test_one_trace_serves_every_batch_size_and_length():
    sentences = [Options(prefix=(2,), constraints=(((3, 4),),), no_repeat=2)]
    before = compiled.cache_info().misses
    for batch, limit, batch_options in [
        (1, 3, sentences),
        (5, 9, sentences * 5),
        (2, 1, [Options(prefix=(2, 3), constraints=(((5,), (3, 4)), ((3, 4, 5),)), no_repeat=2)] * 2),
    ]:
        search(ScriptedModel.random(1, batch, vocab=7), [limit] * batch, 3, batch_options)
    assert compiled.cache_info().misses <= before + 1
    run = compiled(3, 7, (0.6, "gnmt", 0.0, 2, (), 1, 0.0, 0.0, frozenset()), True, True)
    assert run.experimental_get_tracing_count() == 1


INVALID_ARGUMENTS = [
    (lambda: Goal(DecodeConfig(num_groups=2), [3], constraints=[[[[2]]]]), "constraints .* num_groups=2"),
    (lambda: NoRepeatNgram(0), "n must be positive, got 0"),
    (lambda: ExcludedPhrases([[]]), "phrases must be"),
    (lambda: ExcludedPhrases([[3, 0]]), r"phrases must be .* got \(3, 0\)"),
    (lambda: run_with(rules=(ExcludedPhrases([[9]]),)), "phrases have the id 9, the vocabulary ends at 4"),
    (lambda: run_with(prefixes=[3]), r"prefixes must have 2 axes, got shape \(1,\)"),
    (lambda: run_with(constraints=[[3]]), r"constraints must have 4 axes"),
    (lambda: run_with(coverage_penalty=0.2), "coverage_penalty=0.2 needs"),
]


def run_with(coverage_penalty=0.0, **goal_arguments):
    model = ScriptedModel.random(1, batch=1, vocab=5)
    settings = DecodeConfig(beam_size=2, coverage_penalty=coverage_penalty)
    return beam_search(model.step, model.start_cache(2), Goal(settings, [3], **goal_arguments))


@pytest.mark.parametrize(("call", "message"), INVALID_ARGUMENTS)
def test_invalid_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
