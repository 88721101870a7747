"""Glossaries: their files, and the terms of a text."""

import pytest

from t2t_keras.errors import InputError
from t2t_keras.text.terms import Glossary, Term, spellings


def glossary(*lines: str) -> Glossary:
    return Glossary.parsed(lines, "terms.tsv")


def find_sources(text: str, *terms: str) -> list[str]:
    return [term.source for term in glossary(*(f"{term}\tx" for term in terms)).terms_in(text)]


def test_a_file():
    terms = glossary("dog\tHund|Hunde|Hund", "", "  ", " guide  dog \t Blindenhund ").terms
    assert terms == (
        Term("dog", ("Hund", "Hunde"), "terms.tsv, line 1"),
        Term("guide dog", ("Blindenhund",), "terms.tsv, line 4"),
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("dog Hund", "expected a term, a tab and its forms, got 'dog Hund'"),
        ("dog\tHund\tnoun", "expected a term, a tab and its forms"),
        ("\tHund", "the term is blank"),
        ("dog\t", "one of the forms is blank"),
        ("dog\tHund||Hunde", "one of the forms is blank"),
        (" cat\tKater", "the term 'cat' is also in line 1"),
    ],
)
def test_a_malformed_line_is_named(line, words):
    with pytest.raises(InputError, match=f"^terms.tsv, line 2: {words}"):
        glossary("cat\tKatze", line)


@pytest.mark.parametrize(
    ("text", "terms", "expected"),
    [
        ("a dog and dogs", ["dog"], ["dog"]),
        ("dogs", ["dog"], []),
        ("hotdog", ["dog"], []),
        ("Dog bites man.", ["man", "dog"], ["dog", "man"]),
        ("DOG", ["dog"], []),
        ("apple", ["Apple"], []),
        ("Apple", ["Apple", "apple"], ["Apple"]),
        ("Apple", ["apple", "Apple"], ["Apple"]),
        ("an apple by Apple", ["Apple", "apple"], ["apple", "Apple"]),
        ("the guide dog barks", ["dog", "guide dog", "guide"], ["guide dog"]),
        ("Guide dog", ["guide dog"], ["guide dog"]),
        ("one two three four", ["one two", "two three four"], ["two three four"]),
        ("a dog, a dog", ["dog"], ["dog"]),
        ("'dog'.", ["dog"], ["dog"]),
        ("C++ is no C", ["C", "C++"], ["C++", "C"]),
        ("the -v flag", ["-v"], ["-v"]),
        ("", ["dog"], []),
    ],
)
def test_terms_are_found_by_words_and_the_longest_first(text, terms, expected):
    assert find_sources(text, *terms) == expected


def test_a_file_with_the_quotes_of_a_spreadsheet():
    terms = glossary('"the ""big"" dog"\t"der ""große"" Hund|Hund"', '"Yes"\tJa').terms
    assert [term.source for term in terms] == ['the "big" dog', '"Yes"']
    assert terms[0].forms == ('der "große" Hund', "Hund")
    assert [term.source for term in glossary('"dog"\t"Hund"', '"cat"\t"Katze"').terms] == ["dog", "cat"]


def test_sources_can_be_others():
    lowercase = glossary("Apple\tApple", "apple\tApfel").with_sources(["apple", "apple"])
    assert [term.forms for term in lowercase.terms_in("apple")] == [("Apple",)]


def test_spellings_in_lower_case_have_a_capitalised_one():
    assert spellings("dog") == ["dog", "Dog"]
    assert spellings("ß") == ["ß", "SS"] and spellings("Dog") == ["Dog"] and spellings("7") == ["7"]
