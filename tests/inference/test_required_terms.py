"""Glossaries in translations: met, forced, or missing and said so."""

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
    """One that gives its source back, so that it meets a term whose form is the term."""
    glossary = Glossary.parsed(terms, "terms.tsv") if terms else None
    config = DecodeConfig(**{"beam_size": 3, "max_length_offset": 6, **settings})
    model = model or tiny.copy_model()
    return Translator(tiny.tokenizer(), model, TranslatorSettings(config, excluded, glossary, SEARCHES), data)


def uses(translation) -> list[tuple[str, str, bool]]:
    return [(term.source, term.form, term.is_forced) for term in translation.terms]


def test_what_the_model_writes_itself_stays_as_it_is():
    plain = translator().translate(LINES)
    found = translator("dogs\tHunde|dogs", "man\tman", "cat\tKatze").translate(LINES)
    assert [dataclasses.replace(one, terms=()) for one in found] == plain
    assert [uses(one) for one in found] == [[("dogs", "dogs", False)], [("man", "man", False)], [], []]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_what_is_missing_is_forced_in_its_line_alone(beam_size):
    own = translator("dogs\tHunde|Leiter", "snow\tSchnee", "man\tMann|man", beam_size=beam_size)
    found = own.translate(LINES)
    plain = translator(beam_size=beam_size).translate(LINES)
    (dogs, form, forced), snow = uses(found[0])
    assert (dogs, forced) == ("dogs", True) and form in ("Hunde", "Leiter") and snow == ("snow", "Schnee", True)
    assert {form, "Schnee"} <= set(found[0].text.replace(".", " ").split())
    assert [one.text for one in found[1:]] == [one.text for one in plain[1:]]
    assert uses(found[1]) == [("man", "man", False)]
    alone = [own.translate([line])[0] for line in LINES]
    assert [(one.text, one.terms) for one in alone] == [(one.text, one.terms) for one in found]


def test_a_form_in_lower_case_may_come_capitalised():
    (found,) = translator("lazy\tthe").translate(["The lazy dog"])
    assert uses(found) == [("lazy", "The", False)]


def test_every_hypothesis_has_what_the_best_one_has():
    (found,) = translator("dogs\tHunde").translate_nbest(LINES[:1], 3)
    assert len(found) > 1 and all(uses(one) == [("dogs", "Hunde", True)] for one in found)
    (found,) = translator("dogs\tdogs").translate_nbest(LINES[:1], 3)
    assert found and all(uses(one) == [("dogs", "dogs", False)] for one in found)


def test_without_room_a_term_is_missing_and_the_others_are_met():
    form = " ".join(["Zwei Hunde spielen im Schnee"] * 3)
    own = translator(f"dogs\t{form}", "snow\tSchnee", "man\tein")
    missing, met, other = own.translate(["Two dogs play in the snow", "A man", "dogs"])
    assert uses(missing) == [("dogs", "", False), ("snow", "Schnee", True)]
    assert missing.terms[0].forms == (form,)
    assert uses(met) == [("man", "ein", True)]
    assert uses(other) == [("dogs", "", False)] and other.text == "dogs"


def test_parts_of_a_long_line_have_their_own_terms():
    own = translator("dogs\tHunde", "man\tMann", data=DataConfig(max_length=14), max_length_offset=2)
    (found,) = own.translate(["Two dogs play in the snow. A man is standing on a ladder. The quick brown fox."])
    assert found.num_parts > 2
    assert uses(found) == [("dogs", "Hunde", True), ("man", "Mann", True)]
    words = found.text.replace(".", " ").split()
    assert words.index("Hunde") < words.index("Mann")


def test_case_does_not_count_where_the_model_knows_none():
    own = translator("DOGS\tHUNDE", data=DataConfig(lowercase="both"))
    (found,) = own.translate(["Two Dogs"])
    assert uses(found) == [("dogs", "hunde", True)] and "hunde" in found.text.split()


def test_an_untrained_model_does_as_it_is_told():
    own = translator("dogs\tHund|Hunde", "play\tspielen", model=tiny.transformer(), max_length_offset=12)
    (found,) = own.translate(LINES[:1])
    assert [forced for _, form, forced in uses(found) if form] == [True, True]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sampling": True}, "a glossary cannot be combined with decode.sampling=true"),
        ({"num_groups": 3}, "a glossary cannot be combined with decode.num_groups=3"),
        ({"excluded": ("Hund",)}, "terms.tsv, line 1: 'Hund' contains 'Hund', which is excluded"),
        ({"data": DataConfig(task="classification")}, "a glossary: the outputs of this model are labels"),
    ],
)
def test_what_does_not_go_with_it_is_refused(settings, words):
    with pytest.raises(InputError, match=f"^{words}"):
        translator("dog\tHund", **settings)


def test_an_engine_without_constraints_and_subwords_are_refused():
    with pytest.raises(InputError, match="^a glossary: not supported by this engine; use --engine=tensorflow"):
        glossary = Glossary.parsed(["dog\tHund"], "terms.tsv")
        Translator(tiny.tokenizer(), tiny.transformer(), TranslatorSettings(glossary=glossary, engine="ctranslate2"))
    subwords = Tokenizer(serialized_subwords(["a_", "b_", *"ab_u0123456789;\\"]))
    with pytest.raises(InputError, match="^a glossary: the vocabulary's entries"):
        Translator(subwords, tiny.CopyModel(subwords.vocab_size), TranslatorSettings(glossary=glossary))


def test_some_of_the_forms_may_be_excluded():
    own = translator("dogs\tHunde|Leiter", excluded=("Hunde",))
    assert uses(own.translate(LINES[:1])[0]) == [("dogs", "Leiter", True)]
