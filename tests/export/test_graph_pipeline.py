"""The stages of an export for each type of vocabulary: the same tokens, parts and texts as in Python."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.config import DataConfig, DecodeConfig, TransformerConfig
from t2t_keras.errors import InputError
from t2t_keras.export import limits
from t2t_keras.export.exported_weights import Weights
from t2t_keras.export.graph_pipeline import Pipeline, Sentences
from t2t_keras.inference.translation import Translation
from t2t_keras.inference.translator import Translator
from t2t_keras.models import families
from t2t_keras.symbols import EOS_ID
from t2t_keras.text.extension import with_symbols
from t2t_keras.text.tokenizer import Tokenizer
from tests.export import exporting
from tests.inference import tiny

pytestmark = pytest.mark.integration


def assert_same(tokenizer: Tokenizer, lines: list[str], texts: list[bytes], tag: str = "") -> list[Translation]:
    """Asserts that a pipeline translates like its translator; returns the translations."""
    tf.keras.utils.set_random_seed(1)
    model = families.make_model(TransformerConfig(vocab_size=tokenizer.vocab_size, **tiny.MODEL))
    for weight in model.trainable_variables:
        weight.assign(2.5 * weight)  # gives varied outputs
    config = dataclasses.replace(exporting.DECODE, tag=tag)
    translator = Translator(tokenizer, model, config, data=DataConfig(max_length=exporting.MAX_LENGTH))
    expected = translator.translate(lines)
    pipeline = Pipeline(translator, Weights(model), (tokenizer.graph_tokenizer(),) * 2)
    parts = pipeline.parts(tf.constant(texts))
    sources = [ids for translation in expected for ids in translation.source_ids]
    rows = [row for row, translation in enumerate(expected) for _ in translation.source_ids]
    assert [tuple(ids[:n]) for ids, n in zip(*map(np.array, parts.sentences), strict=True)] == sources
    assert parts.rows.numpy().tolist() == rows
    result = pipeline.search(parts.sentences, only_best=True)
    outputs = pipeline.hypotheses(tf.constant(texts), parts, result, result.scores).texts[:, 0]
    assert [text.decode() for text in outputs.numpy()] == [translation.text for translation in expected]
    return expected


@pytest.mark.parametrize("vocab_type", ["char", "byte"])
def test_the_translator_and_its_pipeline_agree(vocab_type):
    expected = assert_same(tiny.tokenizer(vocab_type), exporting.LINES, exporting.TEXTS)
    assert max(t.num_parts for t in expected) > 3 and len({t.text for t in expected}) > 12


@pytest.mark.integration
@pytest.mark.parametrize("languages", [("de", "de"), ("de", "zh"), ("zh", "en")])
@pytest.mark.parametrize("split", ["sentences", "lines"])
def test_texts_are_split_as_in_the_settings(split, languages):
    data = DataConfig(max_length=exporting.MAX_LENGTH, source_language=languages[0], target_language=languages[1])
    config = dataclasses.replace(exporting.DECODE, split=split)
    translator = Translator(tiny.tokenizer(), exporting.translator().model, config, data)
    pipeline = Pipeline(translator, Weights(translator.single_model), (tiny.tokenizer().graph_tokenizer(),) * 2)
    texts = exporting.TEXTS[-1:] + exporting.TEXTS[:3]
    expected = translator.translate([text.decode() for text in texts])
    assert bool(expected[0].sentences) == (split == "sentences")
    parts = pipeline.parts(tf.constant(texts))
    result = pipeline.search(parts.sentences, only_best=True)
    outputs = pipeline.hypotheses(tf.constant(texts), parts, result, result.scores).texts[:, 0]
    assert [text.decode() for text in outputs.numpy()] == [translation.text for translation in expected]


def test_each_part_of_a_text_starts_with_its_symbol():
    tokenizer = with_symbols(tiny.tokenizer(), ["<2de>", "<2fr>"])
    lines = ["<2fr> " + "A dog plays. " * 12, "<2de>", "A <2fr> dog. " * 12]
    tagged, only_tag, untagged = assert_same(tokenizer, lines, [line.encode() for line in lines])
    tag, other_tag = (tokenizer.symbols[symbol] for symbol in ("<2fr>", "<2de>"))
    assert tagged.num_parts > 3 and all(ids[0] == tag for ids in tagged.source_ids)
    assert only_tag.source_ids[0][0] == other_tag
    assert untagged.num_parts > 3 and all(ids[0] != tag for ids in untagged.source_ids)


def test_lines_without_a_tag_get_the_tag_of_the_settings():
    tokenizer = with_symbols(tiny.tokenizer(), ["<2de>", "<2fr>"])
    lines = ["A dog plays. The cat sleeps. " * 12, "<2fr> A dog plays. It sleeps.", " ", "A <2fr> dog."]
    long, french, blank, inner = assert_same(tokenizer, lines, [line.encode() for line in lines], tag="<2de>")
    assert {ids[0] for ids in long.source_ids} == {ids[0] for ids in inner.source_ids} == {tokenizer.symbols["<2de>"]}
    assert {ids[0] for ids in french.source_ids} == {tokenizer.symbols["<2fr>"]} and not blank.source_ids
    with pytest.raises(InputError, match="the tag <2it> .decode.tag. is not a symbol of the model: "):
        Translator(tokenizer, exporting.translator().model, DecodeConfig(tag="<2it>"))


def test_one_graph_returns_the_best_or_all_hypotheses_and_limits_their_size(monkeypatch):
    monkeypatch.setattr(limits, "MAX_ELEMENTS", 150)
    translator = exporting.translator(DecodeConfig(beam_size=3, max_length_factor=1, max_length_offset=8))
    pipeline = Pipeline(translator, Weights(translator.model), (translator.tokenizer.graph_tokenizer(),) * 2)

    def search(rows, only_best):
        ids = tf.constant([[10 + row, 20, EOS_ID] for row in range(rows)], tf.int32, [rows, 3])
        return [values.numpy() for values in pipeline.search(Sentences(ids, tf.fill([rows], 3)), only_best)]

    best = search(4, only_best=True)
    traced = pipeline._search.experimental_get_tracing_count()
    all_hypotheses = search(4, only_best=False)
    assert pipeline._search.experimental_get_tracing_count() == traced
    assert [values.shape for values in all_hypotheses] == [(4, 3, 11), (4, 3), (4, 3), (4, 3)]
    for expected, hypotheses in zip(best, all_hypotheses, strict=True):
        np.testing.assert_allclose(expected, hypotheses[:, :1], rtol=1e-5)
    assert [values.shape[:2] for values in search(0, only_best=False)] == [(0, 3)] * 4
    assert search(13, only_best=True)[0].shape == (13, 1, 11)
    for rows, only_best in ((5, False), (14, True)):
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"shape \[{rows} {1 if only_best else 3} 11\]"):
            search(rows, only_best)
