"""Texts that the signatures of an export translate with a glossary equal those of the translator."""

import json

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.config import Config, DataConfig, DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.export.exported_weights import Weights
from t2t_keras.export.graph_pipeline import Pipeline
from t2t_keras.export.signatures import signatures
from t2t_keras.inference.served_terms import ServedTerms
from t2t_keras.inference.translator import Translator
from t2t_keras.inference.translator_settings import TranslatorSettings
from t2t_keras.symbols import EOS_ID
from t2t_keras.text.terms import Glossary
from tests.export import exporting
from tests.inference import tiny

LINES = ["Two dogs play in the snow.", "A man", "", "The lazy dog", "A man is standing. " * 4, "dogs in the snow " * 5]
LINES.append("Two dogs.\n\nA lazy fox.  A man")
TERMS = [("dogs", "Hunde|Leiter"), ("snow", "Schnee"), ("man", "man|Mann"), ("dog", "Zwei Hunde spielen " * 9)]
DATA = DataConfig(vocab_size=350, max_length=24)


def read(folder, config: Config, **changes) -> ServedTerms:
    """Reads the settings and the vocabulary of an export without a graph."""
    for name in ("assets", "assets.extra"):
        (folder / name).mkdir()
    (folder / "saved_model.pb").touch()
    (folder / "assets.extra" / "config.json").write_text(json.dumps(config.to_dict()))
    tiny.tokenizer().save(folder / "assets" / "vocab.model")
    return ServedTerms(folder, changes)


def answer_texts(texts, tokens, constrained):
    """The response for calls of two functions, and the inputs of all calls of the second function."""
    assert {name for name, _ in texts.first} <= {"tokens"}
    second_calls = [inputs for name, inputs in texts.again([tokens(**inputs) for _, inputs in texts.first])]
    return texts.answer([constrained(**inputs) for inputs in second_calls]), second_calls


def assert_equal(answer, translations):
    """Compares a response with the translations of a translator with the same glossary."""
    assert [text.decode() for text in answer["translation"]] == [one.text for one in translations]
    scores = [max(one.score, np.finfo(np.float32).min) for one in translations]
    np.testing.assert_allclose(answer["score"], scores, rtol=1e-4, atol=1e-5)
    missing = [[name.decode() for name in row if name] for row in answer["missing_terms"]]
    assert missing == [[use.source for use in one.terms if not use.form] for one in translations]


def with_glossary(model, config, data=DATA) -> Translator:
    glossary = Glossary.parsed(["\t".join(pair) for pair in TERMS], "terms.tsv")
    return Translator(tiny.tokenizer(), model, TranslatorSettings(config, glossary=glossary), data)


def test_served_texts_equal_those_of_the_translator(tmp_path):
    model, config = tiny.CopyModel(tiny.tokenizer().vocab_size), DecodeConfig(beam_size=3, max_length_offset=6)
    translator = with_glossary(model, config)

    def tokens(source_ids, source_length, **options):
        assert source_length.tolist() == np.count_nonzero(source_ids, axis=1).tolist()
        actual = translator._searcher(source_ids, True, True, **options)
        ids, scores, _, lengths = (values.numpy()[:, 0] for values in actual)
        return {"translation_ids": ids, "translation_length": lengths, "score": scores}

    # The served glossary does not depend on the settings of the model.
    served = read(tmp_path, Config(model=tiny.transformer().config, data=DATA, decode=config))
    expected = translator.translate(LINES)
    for most_rows in (1, 5, 99):
        texts = served(LINES, TERMS, most_rows)
        assert max(len(inputs["source_ids"]) for _, inputs in texts.first) == min(most_rows, 8)
        answer, second_calls = answer_texts(texts, tokens, tokens)
        assert_equal(answer, expected)
        assert second_calls and all("constraints" in inputs for inputs in second_calls)
    assert any(use.is_forced for one in expected for use in one.terms)
    assert answer["missing_terms"].tolist()[3] == [b"dog"]
    answer, second_calls = answer_texts(served(LINES, [], 8), tokens, tokens)
    assert second_calls == [] and answer["missing_terms"].shape == (len(LINES), 0)


@pytest.mark.integration
def test_signatures_of_an_export(tmp_path):
    translator = exporting.translator()
    pipeline = Pipeline(translator, Weights(translator.model), (translator.tokenizer.graph_tokenizer(),) * 2)
    functions = signatures(pipeline)

    def call_signature(name):
        return lambda **inputs: {
            output: tensor.numpy()
            for output, tensor in functions[name](**{key: tf.constant(value) for key, value in inputs.items()}).items()
        }

    served = read(tmp_path, exporting.config_of(translator))
    answer, second_calls = answer_texts(
        served(LINES, TERMS, 8), call_signature("tokens"), call_signature("constrained")
    )
    expected = with_glossary(translator.model, translator.config, DataConfig(max_length=24)).translate(LINES)
    assert_equal(answer, expected)
    assert second_calls and any(use.is_forced for one in expected for use in one.terms)
    inputs = {name: np.repeat(value[:1], 64, axis=0) for name, value in second_calls[0].items()}
    many = np.resize(inputs["constraints"], (64, 90, 20, 9))
    with pytest.raises(tf.errors.InvalidArgumentError, match="constraints of all hypotheses would have the shape"):
        call_signature("constrained")(**{**inputs, "constraints": many})


def test_glossaries_protect_spans(tmp_path):
    served = read(tmp_path, Config(model=tiny.transformer().config, data=DATA), protect=("man",))
    ((_, inputs),) = served(["A man"], TERMS[:1], 8).first
    assert inputs["source_ids"].tolist() == [[*tiny.tokenizer().encode("A"), EOS_ID]]


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([("dog", "Hund"), (" ", "Hund")], "glossary, entry 2: the term is blank"),
        ([("dog", "Hund||Hunde")], "glossary, entry 1: one of the forms is blank"),
        ([("dog", "Hund"), ("cat", "Katze"), ("dog", "Hunde")], "glossary, entry 3: the term 'dog' is also in entry 1"),
        ([("dog", "\u200b")], "glossary, entry 1: one of the forms is blank"),
    ],
)
def test_invalid_entries_are_rejected(tmp_path, entries, words):
    served = read(tmp_path, Config(model=tiny.transformer().config, data=DATA))
    with pytest.raises(InputError, match=f"^{words}"):
        served(LINES, entries, 8)


def test_incompatible_decoding_settings_are_rejected(tmp_path):
    decode = DecodeConfig(beam_size=4, num_groups=2)
    with pytest.raises(InputError, match=r"^a glossary cannot be combined with decode.num_groups=2"):
        read(tmp_path, Config(model=tiny.transformer().config, data=DATA, decode=decode))
