"""The spread of scores before training: that of equation 1 with queries and keys of unit variance."""

import dataclasses
from typing import Any

import pytest

from t2t_keras.config import Config, DataConfig, TransformerConfig
from t2t_keras.data.prepare import PreparedData, prepare
from t2t_keras.studies.score_spread import score_deviation
from tests.data.small_corpora import corpus_of, some_pairs


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> PreparedData:
    corpus = corpus_of(train=some_pairs(400, 1), valid=some_pairs(30, 2))
    return prepare(corpus, DataConfig(vocab_size=300), tmp_path_factory.mktemp("data"), report=lambda line: None)


def deviation(data: PreparedData, d_key: int, score: Any, initializer: Any, window: int | None = None) -> float:
    sizes: dict[str, Any] = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 64, "d_ff": 8, "num_heads": 4}
    model = TransformerConfig(vocab_size=data.tokenizer.vocab_size, norm_position="pre", **sizes)
    model = dataclasses.replace(model, d_key=d_key, attention_score=score, query_key_initializer=initializer)
    model = dataclasses.replace(model, attention_window=window)
    sources, references = data.text("valid")
    return score_deviation(Config(model=model, data=data.config), data, list(sources), list(references))


def test_unit_variance_spreads_unscaled_scores_with_the_root_of_the_width_and_leaves_scaled_ones(data):
    unscaled = [deviation(data, d_key, "dot", "lecun_uniform") for d_key in (4, 64)]
    scaled = [deviation(data, d_key, "scaled_dot", "lecun_uniform") for d_key in (4, 64)]
    assert unscaled == pytest.approx([2 * scaled[0], 8 * scaled[1]], rel=0.02)
    assert scaled[1] == pytest.approx(scaled[0], rel=0.4)


def test_glorots_start_spreads_them_less_where_keys_are_wide(data):
    narrow, wide = (deviation(data, d_key, "scaled_dot", "glorot_uniform") for d_key in (4, 64))
    assert wide < 0.6 * narrow


def test_what_is_outside_of_a_window_has_no_score(data):
    whole, within = (deviation(data, 16, "scaled_dot", "lecun_uniform", window) for window in (None, 2))
    assert 0.5 * whole < within < 1.1 * whole
