"""Alternatives to a word of a translation: the graph gives the same as a search in Python."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.export import graph_alternatives
from t2t_keras.export.exported_weights import Weights
from t2t_keras.export.graph_pipeline import Pipeline
from t2t_keras.export.traceable import traceable_signature
from t2t_keras.export_contract import ALTERNATIVES, NUM_ALTERNATIVES
from t2t_keras.search.searcher import Searcher
from t2t_keras.symbols import EOS_ID, PAD_ID, UNK_ID
from t2t_keras.text.repair import repair
from tests.export import exporting

TEXTS = ["A man is walking.", "Two dogs play in the snow.", "Zwei Hunde"]


def alternatives_function(translator):
    pipeline = Pipeline(translator, Weights(translator.model), (translator.tokenizer.graph_tokenizer(),) * 2)
    if not pipeline.supports_prefix:
        return None
    return traceable_signature(ALTERNATIVES, functools.partial(graph_alternatives.alternatives, pipeline))


@pytest.fixture(scope="module")
def alternatives(translator):
    return alternatives_function(translator)


def compute_alternatives(alternatives, pairs):
    texts, prefixes = (tf.constant(list(side), tf.string) for side in zip(*pairs, strict=True))
    outputs = alternatives(texts, prefixes)
    assert outputs["translations"].shape == outputs["scores"].shape == (len(pairs), NUM_ALTERNATIVES)
    return [
        [(text.decode(), score) for text, score in zip(*row, strict=True) if score > tf.float32.min]
        for row in zip(outputs["translations"].numpy(), outputs["scores"].numpy(), strict=True)
    ]


@pytest.mark.integration
def test_each_alternative_is_the_result_of_a_search_with_a_forced_word(translator, alternatives):
    tokenizer, model = translator.tokenizer, translator.single_model
    searcher = Searcher(model, translator.config)
    excluded = [*range(UNK_ID + 1), *tokenizer.continuations]
    for text, prefix in [(TEXTS[0], ""), (TEXTS[1], "Zwei Hunde")]:
        source, prefix_ids = np.array([[*tokenizer.encode(text), EOS_ID]], np.int32), tokenizer.encode(prefix)
        target = np.array([[*prefix_ids, EOS_ID]], np.int32)
        logits = np.array(model({"source": source, "target": target})[0, -1])
        logits[excluded] = -np.inf
        expected = []
        for token in np.argsort(-logits)[:NUM_ALTERNATIVES]:
            result = searcher(source, only_best=True, prefix=np.array([[*prefix_ids, token]], np.int32))
            ids = [id for id in result.token_ids[0, 0].numpy().tolist() if id not in (PAD_ID, EOS_ID)]
            expected.append((tokenizer.decode(ids), result.scores[0, 0].numpy()))
        expected.sort(key=lambda pair: -pair[1])
        (actual,) = compute_alternatives(alternatives, [(text, prefix)])
        assert [repair(text) for text, _ in expected] == [text for text, _ in actual]
        np.testing.assert_allclose([s for _, s in expected], [s for _, s in actual], rtol=1e-4)
        assert all(text.startswith(prefix) for text, _ in actual)


@pytest.mark.integration
def test_the_alternatives_of_a_line_do_not_depend_on_other_lines(alternatives):
    pairs = [(text, prefix) for text, prefix in zip(TEXTS, ["Ein", "", "Zwei Hunde spielen im"], strict=True)]
    results = compute_alternatives(alternatives, pairs)
    for pair, in_batch in zip(pairs, results, strict=True):
        (single,) = compute_alternatives(alternatives, [pair])
        assert [text for text, _ in single] == [text for text, _ in in_batch]
        np.testing.assert_allclose([s for _, s in single], [s for _, s in in_batch], rtol=1e-5)


@pytest.mark.integration
def test_a_model_of_lowercased_text_lowercases_the_prefix():
    lowercased = alternatives_function(exporting.translator(lowercase="both"))
    actual, expected = compute_alternatives(lowercased, [("Two DOGS", "Zwei HUNDE"), ("two dogs", "zwei hunde")])
    assert actual == expected != []
    assert all(text.startswith("zwei hunde") for text, _ in actual)


@pytest.mark.integration
def test_alternatives_are_for_the_sentence_where_the_prefix_ends(translator, alternatives):
    sentences = ["Two dogs play.", "A man is walking.", "Zwei Hunde"]
    last = translator.translate(sentences[1:])
    text = f"{sentences[0]}  {sentences[1]}\n{sentences[2]}"
    for prefix, index, sentence_prefix, before, after in [
        ("", 0, "", "", f"  {last[0].text}\n{last[1].text}"),
        ("Zwei Hunde", 0, "Zwei Hunde", "", f"  {last[0].text}\n{last[1].text}"),
        ("Zwei Hunde.", 1, "", "Zwei Hunde.  ", f"\n{last[1].text}"),
        ("Zwei Hunde.  Ein", 1, "Ein", "Zwei Hunde.  ", f"\n{last[1].text}"),
        ("Zwei Hunde.  Ein Mann z. B.\n", 2, "", "Zwei Hunde.  Ein Mann z. B.\n", ""),
        ("Zwei. Ein. Hunde. Schnee", 2, "Hunde. Schnee", "Zwei. Ein. ", ""),
    ]:
        (expected,) = compute_alternatives(alternatives, [(sentences[index], sentence_prefix)])
        (actual,) = compute_alternatives(alternatives, [(text, prefix)])
        assert [alternative for alternative, _ in actual] == [
            f"{before}{alternative}{after}" for alternative, _ in expected
        ]
        np.testing.assert_allclose([s for _, s in actual], [s for _, s in expected], rtol=1e-4)
        assert expected


@pytest.mark.integration
def test_blank_texts_and_long_prefixes_have_no_alternatives(alternatives):
    blank, long = compute_alternatives(alternatives, [(" ", ""), ("Hunde", "Hunde " * 40)])
    assert blank == long == []


def test_invalid_requests_are_rejected(alternatives):
    with pytest.raises(tf.errors.InvalidArgumentError, match="more than 24 tokens.*translated with a prefix"):
        compute_alternatives(alternatives, [("Two dogs play, " * 12, "")])
    with pytest.raises(tf.errors.InvalidArgumentError, match="prefix has a line of more than 1024"):
        compute_alternatives(alternatives, [("Two dogs play.", exporting.TOO_LONG.decode())])
    with pytest.raises(tf.errors.InvalidArgumentError, match="text and prefix must have equal numbers of lines"):
        alternatives(tf.constant(["a", "b"]), tf.constant(["a"]))


@pytest.mark.integration
def test_exports_without_a_prefix_have_no_alternatives():
    sampling = dataclasses.replace(exporting.DECODE, sampling=True, beam_size=1)
    assert alternatives_function(exporting.translator(sampling)) is None
    assert alternatives_function(exporting.translator(excluded=["Hunde"])) is None
