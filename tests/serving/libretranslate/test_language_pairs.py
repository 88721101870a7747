"""Which models translate between which languages, and what codes mean."""

import pytest

from t2t_keras.language_names import language_name
from t2t_keras.serving.libretranslate.language_pairs import LanguagePair, LanguagePairs


def route(pairs, source, target):
    return tuple(pair.model for pair in pairs.route(source, target))


def pairs(*names):
    """Pairs such as "en-de", whose models have these names."""
    return LanguagePairs([LanguagePair(name, *name.split("-")) for name in names])


def test_routes():
    found = pairs("en-de", "de-fr", "fr-it", "en-fr")
    assert found.languages == ("en", "de", "fr", "it")
    assert route(found, "en", "de") == ("en-de",)
    assert route(found, "en", "fr") == ("en-fr",)  # directly, although there are two models that reach it
    assert route(found, "en", "it") == ("en-fr", "fr-it")
    assert route(found, "de", "it") == ("de-fr", "fr-it")
    assert route(found, "en", "en") == ()
    assert found.route("it", "en") is None and found.route("xx", "en") is None
    assert found.targets("en") == ["de", "en", "fr", "it"] and found.targets("it") == ["it"]


def test_the_first_of_two_models_is_used():
    first, second = LanguagePair("first", "en", "de"), LanguagePair("second", "en", "de")
    assert route(LanguagePairs([first, second]), "en", "de") == ("first",)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("pt_BR", "pt-BR"),
        ("PT-br", "pt-BR"),
        ("pt", "pt-BR"),
        ("de-AT", "de"),
        ("zh_Hans", "zh"),
        ("pt-PT", None),
        ("fr", None),
    ],
)
def test_codes(code, expected):
    codes = [LanguagePair("one", "de", "pt-BR"), LanguagePair("two", "de", "zh")]
    assert LanguagePairs(codes).find(code) == expected


def test_names():
    assert [language_name(code) for code in ("de", "pt_BR", "tlh_Latn")] == ["German", "Portuguese (BR)", "tlh_Latn"]
