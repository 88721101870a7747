"""Glossary terms in translations, which the model uses, which are forced, or which are missing."""

import dataclasses

import pytest

from t2t_keras.config import DataConfig, DecodeConfig
from t2t_keras.errors import InputError
from t2t_keras.inference.translator import Translator
from t2t_keras.inference.translator_settings import TranslatorSettings
from t2t_keras.text.subwords import serialized_subwords
from t2t_keras.text.terms import Glossary
from t2t_keras.text.tokenizer import Tokenizer
from tests.inference import tiny

SEARCHES = tiny.SharedSearches()
LINES = ["Two dogs play in the snow.", "A man", "", "The lazy dog"]


def translator(*terms: str, model=None, data: DataConfig | None = None, excluded=(), **settings) -> Translator:
    """A translator whose model copies its source, and therefore uses a term if its form equals the term."""
    glossary = Glossary.parsed(terms, "terms.tsv") if terms else None
    config = DecodeConfig(**{"beam_size": 3, "max_length_offset": 6, **settings})
    model = model or tiny.copy_model()
    return Translator(tiny.tokenizer(), model, TranslatorSettings(config, excluded, glossary, SEARCHES), data)


def uses(translation) -> list[tuple[str, str, bool]]:
    return [(term.source, term.form, term.is_forced) for term in translation.terms]


def test_translations_that_contain_the_terms_are_unchanged():
    plain = translator().translate(LINES)
    translations = translator("dogs\tHunde|dogs", "man\tman", "cat\tKatze").translate(LINES)
    assert [dataclasses.replace(one, terms=()) for one in translations] == plain
    assert [uses(one) for one in translations] == [[("dogs", "dogs", False)], [("man", "man", False)], [], []]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_missing_terms_are_forced_only_in_their_line(beam_size):
    glossary_translator = translator("dogs\tHunde|Leiter", "snow\tSchnee", "man\tMann|man", beam_size=beam_size)
    translations = glossary_translator.translate(LINES)
    plain = translator(beam_size=beam_size).translate(LINES)
    (dogs, form, forced), snow = uses(translations[0])
    assert (dogs, forced) == ("dogs", True) and form in ("Hunde", "Leiter") and snow == ("snow", "Schnee", True)
    assert {form, "Schnee"} <= set(translations[0].text.replace(".", " ").split())
    assert [one.text for one in translations[1:]] == [one.text for one in plain[1:]]
    assert uses(translations[1]) == [("man", "man", False)]
    alone = [glossary_translator.translate([line])[0] for line in LINES]
    assert [(one.text, one.terms) for one in alone] == [(one.text, one.terms) for one in translations]


def test_lowercase_forms_match_capitalised_words():
    (translation,) = translator("lazy\tthe").translate(["The lazy dog"])
    assert uses(translation) == [("lazy", "The", False)]


def test_all_hypotheses_contain_the_forced_terms():
    (hypotheses,) = translator("dogs\tHunde").translate_nbest(LINES[:1], 3)
    assert len(hypotheses) > 1 and all(uses(one) == [("dogs", "Hunde", True)] for one in hypotheses)
    (hypotheses,) = translator("dogs\tdogs").translate_nbest(LINES[:1], 3)
    assert hypotheses and all(uses(one) == [("dogs", "dogs", False)] for one in hypotheses)


def test_terms_that_exceed_the_limit_are_missing():
    form = " ".join(["Zwei Hunde spielen im Schnee"] * 3)
    glossary_translator = translator(f"dogs\t{form}", "snow\tSchnee", "man\tein")
    missing, met, other = glossary_translator.translate(["Two dogs play in the snow", "A man", "dogs"])
    assert uses(missing) == [("dogs", "", False), ("snow", "Schnee", True)]
    assert missing.terms[0].forms == (form,)
    assert uses(met) == [("man", "ein", True)]
    assert uses(other) == [("dogs", "", False)] and other.text == "dogs"


def test_terms_are_matched_to_the_parts_of_a_long_line():
    glossary_translator = translator("dogs\tHunde", "man\tMann", data=DataConfig(max_length=14), max_length_offset=2)
    (translation,) = glossary_translator.translate(
        ["Two dogs play in the snow. A man is standing on a ladder. The quick brown fox."]
    )
    assert translation.num_parts > 2
    assert uses(translation) == [("dogs", "Hunde", True), ("man", "Mann", True)]
    words = translation.text.replace(".", " ").split()
    assert words.index("Hunde") < words.index("Mann")


def test_lowercase_models_match_terms_in_any_case():
    glossary_translator = translator("DOGS\tHUNDE", data=DataConfig(lowercase="both"))
    (translation,) = glossary_translator.translate(["Two Dogs"])
    assert uses(translation) == [("dogs", "hunde", True)] and "hunde" in translation.text.split()


def test_untrained_models_use_the_terms():
    glossary_translator = translator(
        "dogs\tHund|Hunde", "play\tspielen", model=tiny.transformer(), max_length_offset=12
    )
    (translation,) = glossary_translator.translate(LINES[:1])
    assert [forced for _, form, forced in uses(translation) if form] == [True, True]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sampling": True}, "a glossary cannot be combined with decode.sampling=true"),
        ({"num_groups": 3}, "a glossary cannot be combined with decode.num_groups=3"),
        ({"excluded": ("Hund",)}, "terms.tsv, line 1: 'Hund' contains 'Hund', which is excluded"),
        ({"data": DataConfig(task="classification")}, "a glossary: the outputs of this model are labels"),
    ],
)
def test_incompatible_settings_are_rejected(settings, words):
    with pytest.raises(InputError, match=f"^{words}"):
        translator("dog\tHund", **settings)


def test_engines_and_vocabularies_without_constraints_are_rejected():
    with pytest.raises(InputError, match="^this engine does not support glossaries; use --engine=tensorflow"):
        glossary = Glossary.parsed(["dog\tHund"], "terms.tsv")
        Translator(tiny.tokenizer(), tiny.transformer(), TranslatorSettings(glossary=glossary, engine="ctranslate2"))
    subwords = Tokenizer(serialized_subwords(["a_", "b_", *"ab_u0123456789;\\"]))
    with pytest.raises(InputError, match="^a glossary: the vocabulary's entries"):
        Translator(subwords, tiny.CopyModel(subwords.vocab_size), TranslatorSettings(glossary=glossary))


def test_excluded_forms_are_not_used():
    glossary_translator = translator("dogs\tHunde|Leiter", excluded=("Hunde",))
    assert uses(glossary_translator.translate(LINES[:1])[0]) == [("dogs", "Leiter", True)]
