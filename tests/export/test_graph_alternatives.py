"""Other words at a place of a translation, in the graph: they are found as by the search in Python."""

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


def function_of(translator):
    pipeline = Pipeline(translator, Weights(translator.model), (translator.tokenizer.graph_tokenizer(),) * 2)
    if not pipeline.supports_prefix:
        return None
    return traceable_signature(ALTERNATIVES, functools.partial(graph_alternatives.alternatives, pipeline))


@pytest.fixture(scope="module")
def alternatives(translator):
    return function_of(translator)


def asked(alternatives, pairs):
    texts, prefixes = (tf.constant(list(side), tf.string) for side in zip(*pairs, strict=True))
    outputs = alternatives(texts, prefixes)
    assert outputs["translations"].shape == outputs["scores"].shape == (len(pairs), NUM_ALTERNATIVES)
    return [
        [(text.decode(), score) for text, score in zip(*row, strict=True) if score > tf.float32.min]
        for row in zip(outputs["translations"].numpy(), outputs["scores"].numpy(), strict=True)
    ]


@pytest.mark.integration
def test_each_is_what_a_search_finds_that_is_held_to_one_of_the_likeliest_words(translator, alternatives):
    tokenizer, model = translator.tokenizer, translator.single_model
    searcher = Searcher(model, translator.config)
    barred = [*range(UNK_ID + 1), *tokenizer.continuations]
    for text, prefix in [(TEXTS[0], ""), (TEXTS[1], "Zwei Hunde")]:
        source, begun = np.array([[*tokenizer.encode(text), EOS_ID]], np.int32), tokenizer.encode(prefix)
        target = np.array([[*begun, EOS_ID]], np.int32)
        logits = np.array(model({"source": source, "target": target})[0, -1])
        logits[barred] = -np.inf
        expected = []
        for token in np.argsort(-logits)[:NUM_ALTERNATIVES]:
            actual = searcher(source, only_best=True, prefix=np.array([[*begun, token]], np.int32))
            ids = [id for id in actual.token_ids[0, 0].numpy().tolist() if id not in (PAD_ID, EOS_ID)]
            expected.append((tokenizer.decode(ids), actual.scores[0, 0].numpy()))
        expected.sort(key=lambda pair: -pair[1])
        (given,) = asked(alternatives, [(text, prefix)])
        assert [repair(text) for text, _ in expected] == [text for text, _ in given]
        np.testing.assert_allclose([s for _, s in expected], [s for _, s in given], rtol=1e-4)
        assert all(text.startswith(prefix) for text, _ in given)


@pytest.mark.integration
def test_what_a_line_gets_does_not_depend_on_the_others(alternatives):
    pairs = [(text, prefix) for text, prefix in zip(TEXTS, ["Ein", "", "Zwei Hunde spielen im"], strict=True)]
    together = asked(alternatives, pairs)
    for pair, actual in zip(pairs, together, strict=True):
        (alone,) = asked(alternatives, [pair])
        assert [text for text, _ in alone] == [text for text, _ in actual]
        np.testing.assert_allclose([s for _, s in alone], [s for _, s in actual], rtol=1e-5)


@pytest.mark.integration
def test_a_model_of_lowercased_text_reads_a_prefix_as_it_reads_text():
    lowercased = function_of(exporting.translator(lowercase="both"))
    actual, expected = asked(lowercased, [("Two DOGS", "Zwei HUNDE"), ("two dogs", "zwei hunde")])
    assert actual == expected != []
    assert all(text.startswith("zwei hunde") for text, _ in actual)


@pytest.mark.integration
def test_the_sentence_in_which_the_prefix_ends_has_others(translator, alternatives):
    sentences = ["Two dogs play.", "A man is walking.", "Zwei Hunde"]
    last = translator.translate(sentences[1:])
    text = f"{sentences[0]}  {sentences[1]}\n{sentences[2]}"
    for prefix, at, begun, before, behind in [
        ("", 0, "", "", f"  {last[0].text}\n{last[1].text}"),
        ("Zwei Hunde", 0, "Zwei Hunde", "", f"  {last[0].text}\n{last[1].text}"),
        ("Zwei Hunde.", 1, "", "Zwei Hunde.  ", f"\n{last[1].text}"),
        ("Zwei Hunde.  Ein", 1, "Ein", "Zwei Hunde.  ", f"\n{last[1].text}"),
        ("Zwei Hunde.  Ein Mann z. B.\n", 2, "", "Zwei Hunde.  Ein Mann z. B.\n", ""),
        ("Zwei. Ein. Hunde. Schnee", 2, "Hunde. Schnee", "Zwei. Ein. ", ""),
    ]:
        (expected,) = asked(alternatives, [(sentences[at], begun)])
        (actual,) = asked(alternatives, [(text, prefix)])
        assert [each for each, _ in actual] == [f"{before}{each}{behind}" for each, _ in expected]
        np.testing.assert_allclose([s for _, s in actual], [s for _, s in expected], rtol=1e-4)
        assert expected


@pytest.mark.integration
def test_blank_texts_and_prefixes_that_are_too_long_have_none(alternatives):
    blank, long = asked(alternatives, [(" ", ""), ("Hunde", "Hunde " * 40)])
    assert blank == long == []


def test_what_is_refused(alternatives):
    with pytest.raises(tf.errors.InvalidArgumentError, match="more than 24 tokens.*translated with a prefix"):
        asked(alternatives, [("Two dogs play, " * 12, "")])
    with pytest.raises(tf.errors.InvalidArgumentError, match="prefix has a line of more than 1024"):
        asked(alternatives, [("Two dogs play.", exporting.TOO_LONG.decode())])
    with pytest.raises(tf.errors.InvalidArgumentError, match="text and prefix must have equal numbers of lines"):
        alternatives(tf.constant(["a", "b"]), tf.constant(["a"]))


@pytest.mark.integration
def test_who_does_not_offer_it():
    sampling = dataclasses.replace(exporting.DECODE, sampling=True, beam_size=1)
    assert function_of(exporting.translator(sampling)) is None
    assert function_of(exporting.translator(excluded=["Hunde"])) is None
