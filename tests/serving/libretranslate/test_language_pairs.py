"""Language pairs of models, routes through several models, and language codes."""

import pytest

from t2t_keras.language_names import language_name
from t2t_keras.serving.libretranslate.language_pairs import LanguagePair, LanguagePairs


def route(pairs, source, target):
    return tuple(pair.model for pair in pairs.route(source, target))


def pairs(*names):
    """Language pairs such as "en-de", whose models have the same names."""
    return LanguagePairs([LanguagePair(name, *name.split("-")) for name in names])


def test_routes():
    language_pairs = pairs("en-de", "de-fr", "fr-it", "en-fr")
    assert language_pairs.languages == ("en", "de", "fr", "it")
    assert route(language_pairs, "en", "de") == ("en-de",)
    assert route(language_pairs, "en", "fr") == ("en-fr",)  # the direct model, not a route through German
    assert route(language_pairs, "en", "it") == ("en-fr", "fr-it")
    assert route(language_pairs, "de", "it") == ("de-fr", "fr-it")
    assert route(language_pairs, "en", "en") == ()
    assert language_pairs.route("it", "en") is None and language_pairs.route("xx", "en") is None
    assert language_pairs.targets("en") == ["de", "en", "fr", "it"] and language_pairs.targets("it") == ["it"]


def test_the_first_of_two_models_for_a_pair_is_used():
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
def test_language_codes(code, expected):
    codes = [LanguagePair("one", "de", "pt-BR"), LanguagePair("two", "de", "zh")]
    assert LanguagePairs(codes).find(code) == expected


def test_language_names():
    assert [language_name(code) for code in ("de", "pt_BR", "tlh_Latn")] == ["German", "Portuguese (BR)", "tlh_Latn"]
