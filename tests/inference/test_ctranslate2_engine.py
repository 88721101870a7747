"""Compares searches on CTranslate2 with the same searches on TensorFlow, for a small trained run."""

import dataclasses
import functools
import json
import pathlib
import sys
from typing import cast

import numpy as np
import pytest

from t2t_keras.config import DecodeConfig, TransformerConfig
from t2t_keras.config.decode_config import ComputeType, EngineName
from t2t_keras.errors import InputError
from t2t_keras.inference.ctranslate2_engine import CTranslate2Engine
from t2t_keras.inference.request import Request
from t2t_keras.inference.translator import Translator
from t2t_keras.inference.translator_settings import TranslatorSettings
from t2t_keras.models.transformer import Transformer
from t2t_keras.search.batches import padded
from t2t_keras.search.engines import TensorFlowEngine
from t2t_keras.symbols import EOS_ID
from tests.golden import recorder
from tests.inference import tiny

RUN = pathlib.Path(__file__).parents[1] / "golden" / "run"
LINES = [*(source for source, _ in recorder.sentences(20, seed=99)), "", "cat", "the the the dog dog"]
# Settings that both engines interpret alike.
COMMON_SETTINGS = DecodeConfig(beam_size=4, patience=1.0, ends_within_beam=True)

GOLDEN = json.loads((RUN.parent / "searches.json").read_text(encoding="utf-8"))
TOLERANCE = 0.02  # CTranslate2 omits padding, to which this model assigns a probability of 2e-4 per token
needs_ctranslate2 = pytest.mark.skipif("not __import__('importlib.util').util.find_spec('ctranslate2')")


@functools.cache
def translator(engine: EngineName, compute_type: ComputeType = "float32", **changes) -> Translator:
    decode = dataclasses.replace(COMMON_SETTINGS, **changes)
    return Translator.load(RUN, settings=TranslatorSettings(decode, engine=engine, compute_type=compute_type))


def translate_with_both(lines, num_best: int, **changes):
    """The n-best lists of CTranslate2 and of TensorFlow."""
    return (translator(name, **changes).translate_nbest(lines, num_best) for name in ("ctranslate2", "tensorflow"))


def ids(nbest_lists):
    return [[translation.token_ids for translation in nbest] for nbest in nbest_lists]


def assert_similar_scores(actual, expected):
    """Compares the scores of hypotheses that both lists contain."""
    pairs = [(a, b) for x, y in zip(actual, expected, strict=True) for a, b in zip(x, y, strict=False)]
    pairs = [(a, b) for a, b in pairs if a.token_ids == b.token_ids]
    assert len(pairs) >= len(actual) / 2
    for name in ("log_prob", "score"):
        np.testing.assert_allclose(
            *([getattr(one, name) for one in side] for side in zip(*pairs, strict=True)), atol=0.02
        )


@needs_ctranslate2
@pytest.mark.parametrize("name", ["greedy", "beam", "average_length", "no_repeat", "prefix"])
def test_searches_agree_with_golden_results(name):
    """The best hypotheses equal those in `tests/golden`."""
    case = recorder.SEARCHES[name]
    settings = DecodeConfig(**case["decode"])
    engine = Translator.load(RUN, settings=TranslatorSettings(settings, engine="ctranslate2"))
    nbest_lists = engine.translate_nbest(recorder.requests(case.get("request", {})), settings.beam_size)
    pairs = [(nbest[0], golden[0]) for nbest, golden in zip(nbest_lists, GOLDEN[name], strict=True)]
    same = [(one, golden) for one, golden in pairs if json.loads(json.dumps(one.token_ids)) == golden["token_ids"]]
    # CTranslate2 redistributes the probability of barred tokens, so a beam may contain other hypotheses.
    assert len(same) == len(pairs) if name != "no_repeat" else len(same) >= len(pairs) / 2
    for one, golden in same:
        assert one.log_prob == pytest.approx(golden["log_prob"], abs=TOLERANCE)
        assert one.score == pytest.approx(golden["score"], abs=TOLERANCE)
    for nbest in nbest_lists:
        assert [one.score for one in nbest] == sorted((one.score for one in nbest), reverse=True)
        assert len(nbest) == len({one.token_ids for one in nbest})


@needs_ctranslate2
@pytest.mark.parametrize("beam", [1, 4])
def test_searches_without_scores_agree(beam):
    engine = translator("ctranslate2", beam_size=beam)
    lines = [*LINES, Request("cat", prefix="no")]
    translations, scored = (engine.translate(lines, scored=scored) for scored in (False, True))
    assert [one.token_ids for one in translations] == [one.token_ids for one in scored]
    assert np.isnan(translations[0].score) == (beam == 1) and not np.isnan(scored[0].score)


@needs_ctranslate2
@pytest.mark.integration
@pytest.mark.parametrize("changes", [{}, {"length_normalization": "none", "patience": 1.3}], ids=["gnmt", "none"])
def test_beam_searches_agree(changes):
    lines = [Request(line, prefix="no") for line in LINES if line]
    actual, expected = translate_with_both(lines, 4, **changes)
    assert [row[0] for row in ids(actual)] == [row[0] for row in ids(expected)]
    assert_similar_scores(actual, expected)
    if changes:  # both engines then end the same hypotheses
        assert ids(actual) == ids(expected)


@needs_ctranslate2
@pytest.mark.integration
@pytest.mark.parametrize(
    "beam, factor, offset", [(4, 0.0, 3), (1, 0.5, 2), (4, 0.5, 2)], ids=["one_limit", "greedy", "limit_per_sentence"]
)
def test_limits_apply_to_each_sentence(beam, factor, offset):
    actual, expected = translate_with_both(LINES, 1, beam_size=beam, max_length_factor=factor, max_length_offset=offset)
    assert ids(actual) == ids(expected)
    assert_similar_scores(actual, expected)
    assert len({best.num_tokens for (best,) in actual}) > 1 and any(
        best.token_ids[0][-1] != EOS_ID for (best,) in actual if best.num_tokens
    )


@needs_ctranslate2
def test_scores_are_those_of_the_model_despite_barred_tokens():
    translations = translator("ctranslate2", beam_size=1, no_repeat_ngram_size=1, min_length=23).translate(LINES[:9])
    model_scores = translator("tensorflow").score_tokens(
        [one.source_ids[0] for one in translations], [one.token_ids[0] for one in translations]
    )
    assert [one.log_prob for one in translations] == pytest.approx(
        [one.log_prob for one in model_scores], abs=TOLERANCE
    )
    assert min(one.num_tokens for one in translations) > 23


@pytest.fixture(scope="module")
def early_ending_model() -> tuple[Transformer, np.ndarray]:
    """A model that tends to end immediately, and sources."""
    model = cast(Transformer, Translator.load(RUN).model)
    tokenizer = translator("tensorflow").tokenizer
    source = padded([[*tokenizer.encode(line), EOS_ID] for line in LINES if line])
    table = model.target_embedding.table
    first = model.states({"source": source, "target": source[:, :1]}, training=False).hidden[:, 0]
    more = 0.5 * np.mean(first, axis=0)
    table.assign(table.numpy() + np.where(np.arange(table.shape[0])[:, np.newaxis] == EOS_ID, more, 0))
    return model, source


@needs_ctranslate2
@pytest.mark.parametrize(
    ("changes", "only_best"), [({}, True), ({"beam_size": 1}, False)], ids=["the best of a beam", "greedy"]
)
def test_minimum_length_of_one_excludes_only_empty_outputs(early_ending_model, changes, only_best):
    model, source = early_ending_model
    config = dataclasses.replace(COMMON_SETTINGS, **changes)
    results = [
        engine.searcher(model, dataclasses.replace(config, min_length=least))(source, only_best=only_best)
        for engine in (TensorFlowEngine(), CTranslate2Engine())
        for least in (0, 1)
    ]
    any_length, expected, _, same = (result.token_ids.numpy()[:, 0] for result in results)
    assert 0 < np.count_nonzero(any_length[:, 0] == EOS_ID) < len(source)
    assert not (same[:, 0] == EOS_ID).any()
    np.testing.assert_array_equal(same, expected)
    np.testing.assert_allclose(results[3].log_probs[:, 0], results[1].log_probs[:, 0], atol=TOLERANCE)


@needs_ctranslate2
def test_samples_depend_on_the_seed():
    sampling = {"sampling": True, "patience": 0.0, "ends_within_beam": False, "beam_size": 5, "temperature": 2.0}
    config = dataclasses.replace(COMMON_SETTINGS, **sampling, seed=3)

    def samples(config):
        settings = TranslatorSettings(config, engine="ctranslate2")
        return ids(Translator.load(RUN, settings=settings).translate_nbest(LINES[:9], 5))

    one = samples(config)
    assert one == samples(config) != samples(dataclasses.replace(config, seed=4))
    nbest_lists = translator("ctranslate2", **sampling).translate_nbest(LINES[:9], 5)
    scores = [[one.log_prob for one in row] for row in nbest_lists]
    assert {int(np.argmax(row)) for row in scores} != {0}
    model_scores = translator("tensorflow").score_tokens(
        *([getattr(one, side)[0] for row in nbest_lists for one in row] for side in ("source_ids", "token_ids"))
    )
    drawn_log_probs = [one for row in scores for one in row]
    np.testing.assert_allclose(drawn_log_probs, [one.log_prob for one in model_scores], atol=TOLERANCE, rtol=1e-3)
    assert len(translator("ctranslate2", **{**sampling, "top_k": 10**6}).translate(LINES[:2])) == 2
    likeliest = translator("ctranslate2", **{**sampling, "top_k": 1}).translate(LINES[:9])
    greedy = translator("ctranslate2", beam_size=1).translate(LINES[:9])
    assert [one.token_ids for one in likeliest] == [one.token_ids for one in greedy]


@needs_ctranslate2
@pytest.mark.parametrize(
    "sizes",
    [{"position_encoding": "learned", "max_positions": 6}, {"norm_position": "pre", "tie_embeddings": False}],
    ids=["learned", "pre_norm"],
)
def test_sources_longer_than_the_positions_of_the_format(sizes):
    model = Transformer(TransformerConfig(**{**tiny.MODEL, "vocab_size": 40, **sizes}))
    model.build()
    config = DecodeConfig(beam_size=1, max_length_factor=0.0, max_length_offset=3)
    searcher = CTranslate2Engine(longest_source=2100).searcher(model, config, (), None)
    source = padded([[*[5, 6, 7] * 690, EOS_ID], [5, EOS_ID]])
    np.testing.assert_array_equal(searcher(source).lengths.numpy() <= 3, True)


def error_of(model=None, config=COMMON_SETTINGS, excluded=(), **arguments) -> str:
    model = model or translator("tensorflow").model
    with pytest.raises(InputError) as error:
        settings = TranslatorSettings(config, excluded, engine="ctranslate2")
        Translator(tiny.tokenizer(), model, settings, **arguments)
    return str(error.value)


@pytest.mark.parametrize(
    "changes, setting",
    [
        ({"coverage_penalty": 0.2}, "decode.coverage_penalty=0.2"),
        ({"num_groups": 2, "diversity_strength": 0.5}, "decode.num_groups=2"),
        ({"bfloat16": True}, "decode.bfloat16=True"),
    ],
)
def test_unsupported_settings_are_rejected(changes, setting):
    message = f"the engine ctranslate2 does not support {setting}; use --engine=tensorflow"
    assert error_of(config=dataclasses.replace(COMMON_SETTINGS, **changes)) == message


def test_unsupported_models_are_rejected():
    sizes = {**tiny.MODEL, "vocab_size": tiny.tokenizer().vocab_size}
    windowed = Transformer(TransformerConfig(**sizes, attention_window=4))
    assert "does not support model.attention_window=4;" in error_of(windowed)
    copier = tiny.CopyModel(tiny.tokenizer().vocab_size)
    assert "does not support an ensemble;" in error_of(copier)  # a model without settings
    assert "does not support excluded words;" in error_of(excluded=["dogs"])


def test_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    assert error_of() == "the package ctranslate2 is missing: pip install '.[fast]'"


@needs_ctranslate2
def test_unsupported_compute_types_are_rejected(monkeypatch):
    monkeypatch.setattr("ctranslate2.get_supported_compute_types", lambda device: {"float32", "int8"})
    with pytest.raises(InputError, match="--compute_type=bfloat16: CTranslate2 supports float32, int8 on this "):
        translator("ctranslate2", "bfloat16")


@needs_ctranslate2
def test_unsupported_requests_are_rejected():
    with pytest.raises(InputError, match="line 2: this engine does not support constraints; use --engine=tensorflow"):
        translator("ctranslate2", beam_size=1).translate(["cat", Request("cat", constraints=("tac",))])
    with pytest.raises(InputError, match="this engine does not support excluded"):
        translator("ctranslate2", beam_size=1).check(Request("cat", excluded=("tac",)))
