"""Searches on TensorFlow Lite against the same searches on TensorFlow."""

import concurrent.futures
import functools

import numpy as np
import pytest
import tensorflow as tf
import tiny

from t2t_keras.config import DecodeConfig, TransformerConfig
from t2t_keras.inference.request import Request
from t2t_keras.inference.translator import Translator
from t2t_keras.lite import LiteEngine, LiteModel
from t2t_keras.lite.interpreter import converted
from t2t_keras.models.transformer import Transformer
from t2t_keras.search.batches import padded
from t2t_keras.search.ensemble import Ensemble
from t2t_keras.search.searches import Searches
from t2t_keras.symbols import EOS_ID

pytestmark = pytest.mark.integration

VOCAB = 60
SHAPES = {
    "paper": {},
    "pre_norm_without_bias": {"norm_position": "pre", "use_attention_bias": False, "attention_score": "dot"},
    "untied_and_learned": {"tie_embeddings": False, "position_encoding": "learned", "max_positions": 20},
    "swish": {"activation": "swish", "use_output_bias": True},
    "gelu": {"activation": "gelu"},
    "odd_widths": {"d_key": 4, "d_value": 12, "num_encoder_layers": 2, "num_decoder_layers": 1},
}
# Of 1 to 15 tokens, so that sentences leave at different steps, after more steps than the cache has room for at first.
RANDOM = np.random.default_rng(5)
SOURCES = [[*RANDOM.integers(3, VOCAB, length).tolist(), EOS_ID] for length in (2, 14, 5, 1, 9, 12, 3, 7)]


@functools.cache
def make_model(shape: str = "paper", seed: int = 1) -> Transformer:
    """Untrained, but with opinions, that differ from position to position."""
    tf.keras.utils.set_random_seed(seed)
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 2, "d_model": 16, "d_ff": 32, "num_heads": 2}
    model = Transformer(TransformerConfig(vocab_size=VOCAB, **{**sizes, **SHAPES[shape]}))
    model.build()
    random = np.random.default_rng(seed)
    for weight in model.trainable_variables:
        weight.assign(weight + 0.3 * random.standard_normal(tuple(weight.shape)).astype("float32"))
    return model


@functools.cache
def lite(shape: str = "paper", seed: int = 1) -> LiteModel:
    return LiteModel(make_model(shape, seed))


def searches_of(model, config: DecodeConfig) -> Searches:
    """As a translator makes them."""
    members = [m for m in getattr(model, "models", [model]) if isinstance(m, LiteModel)]
    return Searches(model, config, engine=LiteEngine(members) if members else None)


def num_idle() -> int:
    """Sessions of `lite()` that wait for a search."""
    return sum(map(len, lite().sessions._idle.values()))


def settings(beam_size: int, **changes) -> DecodeConfig:
    return DecodeConfig(**{"beam_size": beam_size, "min_length": 3, "max_length_factor": 2, **changes})


def assert_same(found, wanted) -> None:
    np.testing.assert_array_equal(found.token_ids, wanted.token_ids)
    np.testing.assert_array_equal(found.lengths, wanted.lengths)
    np.testing.assert_allclose(found.scores, wanted.scores, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("beam_size", [1, 3])
def test_finds_what_tensorflow_finds(shape, beam_size):
    config = settings(beam_size, max_length_offset=10)
    found, wanted = (searches_of(model(shape), config)(padded(SOURCES)) for model in (lite, make_model))
    assert found.token_ids.shape[2] > 16  # more steps than there is room for at first
    assert len(set(wanted.lengths[:, 0].numpy())) > 3
    assert_same(found, wanted)


@pytest.mark.parametrize(
    "changes",
    [
        {"coverage_penalty": 0.4},
        {"num_groups": 2, "diversity_strength": 0.5},
        {"no_repeat_ngram_size": 2},
        {"sampling": True, "temperature": 1.5},
        {"patience": 1.0, "length_normalization": "average"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_with_every_kind_of_search(changes):
    config = settings(4, **changes)
    assert_same(*(searches_of(model(), config)(padded(SOURCES)) for model in (lite, make_model)))


@pytest.mark.parametrize("beam_size", [1, 2])
def test_with_prefixes_constraints_and_excluded_phrases(beam_size):
    asked = {
        "prefix": padded([[7, 8], [9], [], [], [10], [], [], []]),
        "constraints": np.array([[[30]], [[0]], [[31]], [[0]], [[0]], [[32]], [[0]], [[0]]], np.int32),
        "excluded": np.array([[[0]], [[40]], [[0]], [[5]], [[0]], [[0]], [[0]], [[0]]], np.int32),
    }
    config = settings(beam_size)
    assert_same(*(searches_of(model(), config)(padded(SOURCES), **asked) for model in (lite, make_model)))


@pytest.mark.parametrize("beam_size", [1, 3])
def test_an_ensemble(beam_size):
    config = settings(beam_size)
    found, wanted = (
        searches_of(Ensemble([model(), model("odd_widths", 2)]), config)(padded(SOURCES))
        for model in (lite, make_model)
    )
    assert_same(found, wanted)
    assert not lite()._running and not lite("odd_widths", 2)._running


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_sentence_does_not_depend_on_its_batch(beam_size):
    searches = searches_of(lite(), settings(beam_size))
    together = searches(padded(SOURCES))
    for row, source in enumerate(SOURCES):
        alone = searches(padded([source]))
        length = int(together.lengths[row, 0])
        assert length == alone.lengths[0, 0]
        np.testing.assert_array_equal(alone.token_ids[0, 0, :length], together.token_ids[row, 0, :length])
        np.testing.assert_allclose(alone.scores[0], together.scores[row], rtol=1e-5)
    assert searches.num_traces() == 0  # what has no options needs no graph


@pytest.mark.parametrize("changes", [{}, {"no_repeat_ngram_size": 9}], ids=["in_numpy", "in_a_graph"])
@pytest.mark.parametrize("beam_size", [1, 3])
def test_searches_side_by_side_do_not_meet(beam_size, changes):
    searches = searches_of(lite(), settings(beam_size, **changes))
    batches = [padded(SOURCES[start : start + 3]) for start in range(6)]
    wanted = [searches(batch) for batch in batches]
    before = num_idle()
    with concurrent.futures.ThreadPoolExecutor(4) as executor:
        found = list(executor.map(searches, batches * 3))
    for result, expected in zip(found, wanted * 3, strict=True):
        np.testing.assert_array_equal(result.token_ids, expected.token_ids)
        np.testing.assert_array_equal(result.scores, expected.scores)
    assert not lite()._running
    assert 0 < before <= num_idle() <= before + 3
    after = num_idle()
    for batch in batches:
        searches(batch)
    assert num_idle() == after  # used again


@pytest.mark.parametrize("beam_size", [1, 2])
def test_an_empty_batch_and_one_without_room(beam_size):
    searches = searches_of(lite(), settings(beam_size))
    assert searches(np.zeros([0, 3], np.int32)).token_ids.shape[:2] == (0, beam_size)
    result = searches_of(lite(), settings(beam_size, max_length_factor=0, max_length_offset=1, min_length=0))(
        padded(SOURCES)
    )
    assert result.token_ids.shape[2] == 1


def test_eight_bits_change_scores_a_little_and_take_less_than_three_tenths_of_the_size():
    tf.keras.utils.set_random_seed(3)
    model = Transformer.from_preset("tiny", vocab_size=500)
    model.build()
    models = [LiteModel(model, int8=True), LiteModel(model)]
    found, wanted = (searches_of(lite_model, settings(2))(padded(SOURCES)) for lite_model in models)
    difference = np.abs(found.scores[:, 0] - wanted.scores[:, 0])
    assert difference.max() > 1e-4
    assert np.median(difference) < 0.1
    small, large = (
        sum(map(len, (lite_model.sessions._encoder, *lite_model.sessions._steps.values()))) for lite_model in models
    )
    assert 0.25 * large < small < 0.3 * large  # a weight takes a byte instead of four, the rest as much as before


@pytest.mark.parametrize("scored", [True, False])
def test_eight_bits_greedily(scored):
    model = LiteModel(make_model(), int8=True)
    found = searches_of(model, settings(1))(padded(SOURCES), scored=scored)
    wanted = searches_of(make_model(), settings(1))(padded(SOURCES))
    assert np.isnan(found.scores).all() != scored
    same = np.mean(found.token_ids.numpy()[:, 0, :5] == wanted.token_ids.numpy()[:, 0, :5])
    assert same >= 0.9  # choices between equals may fall otherwise on another processor


def test_many_threads_at_once_convert_once(monkeypatch):
    conversions = []
    monkeypatch.setattr(
        "t2t_keras.lite.sessions.converted",
        lambda function, int8: conversions.append(function) or converted(function, int8),
    )
    model = LiteModel(make_model())
    searches = [searches_of(model, settings(beam_size)) for beam_size in (1, 3)]
    with concurrent.futures.ThreadPoolExecutor(6) as executor:
        found = list(executor.map(lambda number: searches[number % 2](padded(SOURCES)), range(12)))
    assert len(conversions) == 3  # an encoder, and a step for each beam
    for number, result in enumerate(found):
        assert_same(result, searches_of(make_model(), settings((1, 3)[number % 2]))(padded(SOURCES)))


def test_a_conversion_that_is_interrupted_is_made_again(monkeypatch):
    def interrupt(model):
        raise KeyboardInterrupt

    searches = searches_of(LiteModel(make_model()), settings(2))
    with monkeypatch.context() as patch:
        patch.setattr("t2t_keras.lite.sessions.Tables", interrupt)
        with pytest.raises(KeyboardInterrupt):
            searches(padded(SOURCES))
    assert_same(searches(padded(SOURCES)), searches_of(make_model(), settings(2))(padded(SOURCES)))


def test_scores_and_explanations_are_the_models_own():
    translators = [Translator(tiny.tokenizer(), model) for model in (tiny.transformer(), LiteModel(tiny.transformer()))]
    lines = [tiny.SENTENCES[:2], tiny.SENTENCES[3:]]
    assert translators[0].score(*lines) == translators[1].score(*lines)
    found = [translator.explain(*lines)[0].attention.decoder for translator in translators]
    np.testing.assert_array_equal(*found)


def test_requests_of_a_translator():
    lines = [*tiny.SENTENCES, Request(tiny.SENTENCES[0], prefix="Ein"), Request(tiny.SENTENCES[1], excluded=("dog",))]
    config = DecodeConfig(beam_size=2, max_length_offset=6)
    lite_model = LiteModel(tiny.transformer())
    found = Translator(tiny.tokenizer(), lite_model, config, engine=LiteEngine([lite_model])).translate(lines)
    wanted = Translator(tiny.tokenizer(), tiny.transformer(), config).translate(lines)
    assert [translation.text for translation in found] == [translation.text for translation in wanted]
    assert found[5].text.startswith("Ein")


@pytest.mark.parametrize(
    ("changes", "error"),
    [({}, MemoryError), ({"no_repeat_ngram_size": 9}, tf.errors.OpError)],
    ids=["in_numpy", "in_a_graph"],
)
@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_search_that_fails_leaves_nothing_behind(beam_size, changes, error, monkeypatch):
    def fail(*arguments):
        raise MemoryError("no room")

    searches = searches_of(lite(), settings(beam_size, **changes))
    wanted = searches(padded(SOURCES))
    before = num_idle()
    with monkeypatch.context() as patch:
        patch.setattr("t2t_keras.lite.session.Session.advance", fail)
        with pytest.raises(error, match="no room"):
            searches(padded(SOURCES))
    assert not lite()._running and num_idle() == before - 1
    assert_same(searches(padded(SOURCES)), wanted)


def test_what_it_cannot_do():
    model = lite()
    with pytest.raises(ValueError, match="bfloat16"):
        searches_of(model, DecodeConfig(bfloat16=True))(padded(SOURCES))
    tf.keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        mixed = Transformer.from_preset("tiny", vocab_size=50)
    finally:
        tf.keras.config.set_dtype_policy("float32")
    with pytest.raises(ValueError, match="float32, got bfloat16"):
        LiteModel(mixed)


def test_another_members_failure_leaves_nothing_behind(monkeypatch):
    """In an ensemble the others' searches end with the one that fails."""
    models = [LiteModel(make_model()), LiteModel(make_model(seed=2))]
    searches = searches_of(Ensemble(models), settings(2))
    searches(padded(SOURCES[:2]))

    def fail(*arguments):
        raise RuntimeError("no memory")

    with monkeypatch.context() as patch, pytest.raises(tf.errors.OpError):
        patch.setattr(models[1].sessions, "start", fail)
        searches(padded(SOURCES[:2]))
    assert not models[0]._running and not models[1]._running
