"""Every search setting and kind of request, through a translator, on a model of random weights."""

import itertools

import numpy as np
import pytest

from t2t_keras.config import DataConfig, DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.inference.request import Request
from t2t_keras.inference.translation import Translation, join_parts
from t2t_keras.inference.translator import Translator
from t2t_keras.inference.translator_settings import TranslatorSettings
from t2t_keras.search.ensemble import Ensemble
from t2t_keras.search.searcher import output_limits
from t2t_keras.symbols import EOS_ID
from t2t_keras.text.words import word_places
from tests.inference import tiny

LINES = [*tiny.SENTENCES[:3], "dogs"]
REQUESTS = [
    "A man",
    Request("A man", prefix="Ein Hund"),
    Request("Two dogs", constraints=("blauen", "Schnee")),
    Request("Two dogs play", excluded=("Hund", "!")),
    Request("in the snow", prefix="Zwei", constraints=("Leiter",)),
    Request("snow", constraints=("Mann",), excluded=("dog",)),
    Request("A dog", "Ein", ("Hemd", ("Hund", "Leiter")), ("man",)),
]


def translator(model=None, excluded=(), **settings) -> Translator:
    config = DecodeConfig(**{"beam_size": 3, "max_length_offset": 8, **settings})
    return Translator(tiny.tokenizer(), model or tiny.transformer(), TranslatorSettings(config, excluded))


@pytest.fixture(scope="module")
def default_translator() -> Translator:
    return translator()


def ids_of(text: str) -> tuple[int, ...]:
    return tuple(tiny.tokenizer().encode(text))


def contains(ids: tuple[int, ...], phrase: tuple[int, ...]) -> bool:
    return any(ids[start : start + len(phrase)] == phrase for start in range(len(ids)))


def is_same(first: Translation, second: Translation) -> bool:
    return first.token_ids == second.token_ids and first.score == pytest.approx(second.score, abs=1e-4)


@pytest.mark.integration
def test_requests_are_fulfilled_independently():
    search_translator = translator()
    translations = search_translator.translate(REQUESTS)
    for request, translation in zip(REQUESTS[1:], translations[1:], strict=True):
        (ids,) = translation.token_ids
        assert ids[: len(ids_of(request.prefix))] == ids_of(request.prefix)
        assert translation.text.startswith(request.prefix)
        assert all(contains(ids, ids_of(phrase)) for phrase in request.constraints if isinstance(phrase, str))
        for phrase in request.constraints:
            alternatives = (phrase,) if isinstance(phrase, str) else phrase
            assert any([*word_places(translation.text, form)] for form in alternatives), (
                "a constraint is only part of a word"
            )
        assert not any(contains(ids, ids_of(phrase)) for phrase in request.excluded)
    traces = search_translator._searcher.num_traces()
    assert traces == 7, "each kind of request is traced once"
    reordered = search_translator.translate([*REQUESTS[::-1], *REQUESTS])
    assert all(map(is_same, reordered, [*translations[::-1], *translations]))
    assert all(
        is_same(search_translator.translate([request])[0], before)
        for request, before in zip(REQUESTS, translations, strict=True)
    )
    assert list(search_translator.translate_stream(REQUESTS, chunk_lines=2))[3].text == translations[3].text
    assert search_translator._searcher.num_traces() == traces


def test_requests_without_options_use_the_plain_search(default_translator):
    search_translator, expected = default_translator, default_translator.translate(LINES)
    traces = search_translator._searcher.num_traces()
    assert search_translator.translate([Request(line) for line in LINES]) == expected
    assert search_translator._searcher.num_traces() == traces >= 1
    search_translator.check("A man"), search_translator.check(Request("A man", "Ein"))
    with pytest.raises(InputError, match="^prefix"):
        search_translator.check(Request("", "Ein"))


@pytest.mark.integration
@pytest.mark.parametrize("beam_size", [1, 3])
def test_excluded_words(beam_size):
    copier, settings = tiny.CopyModel(tiny.tokenizer().vocab_size), {"beam_size": beam_size, "max_length_offset": 2}
    lines = ["Two dogs play", "dogs", "A man"]
    assert [t.text for t in translator(copier, **settings).translate(lines)] == lines
    for_all = translator(copier, excluded=("dogs",), **settings).translate(lines)
    for_each = translator(copier, **settings).translate([Request(line, excluded=("dogs",)) for line in lines])
    assert all(map(is_same, for_all, for_each))
    assert not any("dogs" in translation.text.split() for translation in for_all)
    assert for_all[0].text.startswith("Two") and for_all[2].text == "A man"


@pytest.mark.quick("settings0")
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"length_normalization": "average"},
        pytest.param({"length_normalization": "none"}, marks=pytest.mark.slow),
        pytest.param({"length_penalty": 1.0}, marks=pytest.mark.slow),
    ],
)
def test_nbest_scores_are_those_of_the_model(settings, default_translator):
    search_translator = translator(**settings) if settings else default_translator
    lines = [*LINES, "", Request("A man", prefix="Ein")]
    nbest_lists = search_translator.translate_nbest(lines, 3)
    assert [hypotheses[0] for hypotheses in nbest_lists] == search_translator.translate(lines)
    assert [len(hypotheses) for hypotheses in nbest_lists] == [3, 3, 3, 3, 1, 3]
    flat = [translation for hypotheses in nbest_lists for translation in hypotheses if translation.num_parts]
    forced = search_translator.score_tokens([t.source_ids[0] for t in flat], [t.token_ids[0] for t in flat])
    for translation, score in zip(flat, forced, strict=True):
        assert sum(score.token_log_probs) == pytest.approx(translation.log_prob, abs=1e-4)
        assert score.score == pytest.approx(translation.score, abs=1e-4)
        assert len(score.pieces) == translation.num_tokens == len(translation.token_ids[0])
    for hypotheses in nbest_lists:
        assert sorted(hypotheses, key=lambda t: -t.score) == hypotheses
        assert len({translation.token_ids for translation in hypotheses}) == len(hypotheses)


@pytest.mark.parametrize("settings", [{"coverage_penalty": 0.2}, {"bfloat16": True}])
def test_unsupported_settings_are_rejected_before_the_search(settings):
    (name,) = settings
    with pytest.raises(InputError, match=f"^decode.{name}: the model does not support"):
        translator(tiny.CopyModel(tiny.tokenizer().vocab_size), **settings)


def test_nbest_of_a_split_line_are_the_best_combinations():
    config = DecodeConfig(beam_size=3, max_length_offset=3)
    search_translator = Translator(tiny.tokenizer(), tiny.transformer(), config, data=DataConfig(max_length=12))
    line = tiny.SENTENCES[1]
    (nbest,) = search_translator.translate_nbest([line], 3)
    assert nbest[0].num_parts > 1
    parts = [search_translator.tokenizer.decode(ids) for ids in nbest[0].source_ids]
    sums = [
        sum(t.score for t in combination)
        for combination in itertools.product(*search_translator.translate_nbest(parts, 3))
    ]
    np.testing.assert_allclose([t.score for t in nbest], sorted(sums, reverse=True)[:3], atol=1e-4)
    assert nbest[0] == search_translator.translate([line])[0]
    assert len(nbest[0].token_ids) == nbest[0].num_parts


@pytest.mark.integration
def test_samples_depend_on_the_seed():
    search_translator = translator(sampling=True, temperature=1.5, top_k=50, top_p=0.9)
    samples_of_lines = search_translator.translate_nbest(LINES, 3)
    assert [samples[0] for samples in samples_of_lines] == search_translator.translate(LINES)
    assert [t.text for t in search_translator.translate(LINES[::-1])] == [
        samples[0].text for samples in samples_of_lines[::-1]
    ]
    assert len({sample.text for sample in samples_of_lines[0]}) == 3
    other_seed = translator(sampling=True, temperature=1.5, seed=2).translate(LINES)
    assert [t.text for t in other_seed] != [samples[0].text for samples in samples_of_lines]
    (prefixed,) = search_translator.translate([Request("A man", prefix="Ein Hund", excluded=("Mann",))])
    assert prefixed.text.startswith("Ein Hund")
    long = Translator(
        search_translator.tokenizer, search_translator.model, search_translator.config, data=DataConfig(max_length=12)
    )
    (samples,) = long.translate_nbest(LINES[1:2], 3)
    assert len(samples) == 3 and all(sample.num_parts > 1 for sample in samples)


def test_diverse_groups_start_differently():
    (actual,) = translator(beam_size=2, num_groups=2, diversity_strength=100.0).translate_nbest(["A man"], 2)
    first, second = (translation.token_ids[0] for translation in actual)
    assert all(
        first_id != second_id
        for first_id, second_id in zip(first, second, strict=False)
        if EOS_ID not in (first_id, second_id)
    )


@pytest.mark.quick("2")
@pytest.mark.parametrize("size", [1, 2])
def test_no_repeated_ngrams(size):
    for translation in translator(no_repeat_ngram_size=size, min_length=7).translate(LINES):
        (ids,) = translation.token_ids
        grams = [ids[start : start + size] for start in range(len(ids) - size + 1)]
        assert len(grams) == len(set(grams)) > 5


@pytest.mark.quick("1")
@pytest.mark.parametrize("members", [0, 1, 2])
def test_the_coverage_penalty_follows_the_attention(members):
    models = (tiny.transformer(), tiny.transformer(d_ff=48))[:members]
    search_translator = translator(Ensemble(models) if members else None, coverage_penalty=0.7)
    translations = [
        translation for hypotheses in search_translator.translate_nbest(LINES, 3) for translation in hypotheses
    ]
    explained = search_translator.explain_tokens(
        [t.source_ids[0] for t in translations], [t.token_ids[0] for t in translations]
    )
    for translation, explanation in zip(translations, explained, strict=True):
        coverage = explanation.attention.cross[-1].mean(0).sum(0)
        expected = translation.log_prob / ((5 + translation.num_tokens) / 6) ** 0.6
        expected += 0.7 * np.log(np.minimum(coverage, 1)).sum()
        assert translation.score == pytest.approx(expected, abs=1e-4)


def test_a_line_has_no_translation_if_a_part_has_none():
    nan, inf = float("nan"), float("inf")
    parts = [Translation("a", nan, nan, 3, 1), Translation("", -inf, -inf, 0, 1)]
    assert not join_parts(parts).exists and join_parts(parts).log_prob == -inf
    assert join_parts(parts[:1] * 2).exists and np.isnan(join_parts(parts[:1] * 2).score)


def test_output_limits_are_lengths_times_a_factor_plus_an_offset():
    config = DecodeConfig(max_length_factor=1.5, max_length_offset=5)
    assert output_limits([1, 2, 3, 10], config).numpy().tolist() == [7, 8, 10, 20]
