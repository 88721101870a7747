"""Sentences of texts: their ends, and that no text is lost."""

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.sentences import PATH, by_rules, measured, paragraphs, paragraphs_of_lines
from t2t_keras.text.repair import UNPRINTABLE, repair
from t2t_keras.text.sentences import BREAK, WHITE_SPACE, Sentence, blank_between, find_sentences


def texts_of(text: str, language: str = "en") -> list[str]:
    return [sentence.text for sentence in find_sentences(text, language)]


def test_hard_boundaries_are_found():
    """The rules match the quality of a library: docs/translating.md has the figures."""
    corpus = paragraphs()
    assert sum(len(paragraph.begins) for paragraph in corpus) >= 1000
    assert measured(by_rules, corpus).f1 > 97.5
    for language in ("en", "de", "fr", "zh", "ja"):
        corpus_of_language = [paragraph for paragraph in corpus if paragraph.language == language]
        assert measured(by_rules, corpus_of_language).f1 > 95, language


def test_a_single_sentence_is_not_split():
    """This holds for nearly all of these difficult sentences, some of which a reader might split as well."""
    lines = [line.split("\t") for line in PATH.read_text(encoding="utf-8").splitlines()]
    wrong = [text for language, _, text in lines if len(texts_of(text, language)) != 1 and "|" not in text]
    assert len(wrong) <= 4, wrong


def test_lines_of_a_file_become_paragraphs():
    (first, second) = paragraphs_of_lines(["One. ", "", "Two.", " Three.", "Four."], "en")
    assert (first.text, first.begins, second.text) == ("One. Two. Three.", {5, 10}, "Four.")


def test_white_space_between_sentences_is_kept():
    text = "  One dog.  Two dogs.\n\n\tThree dogs.\r\nA\rtitle\nFour.\u2028Five. \n"
    actual = find_sentences(text, "en")
    assert actual == [
        Sentence("", "One dog."),
        Sentence("  ", "Two dogs."),
        Sentence("\n\n\t", "Three dogs."),
        Sentence("\r\n", "A\rtitle"),
        Sentence("\n", "Four."),
        Sentence("\u2028", "Five."),
    ]
    assert "".join(map("".join, actual)) == text.strip()


def test_blank_texts_have_no_sentences():
    for text in ("", " \n\t", "\u3000\u00a0", "\u200b\x00"):
        assert find_sentences(text, "en") == []


def test_the_space_between_adjacent_sentences():
    assert texts_of("你好。再见！他说：“好。”", "zh") == ["你好。", "再见！", "他说：“好。”"]
    assert [blank_between(language) for language in ("zh", "ja-JP", "ZH_tw", "cmn_Hans")] == [""] * 4
    assert [blank_between(language) for language in ("en", "de-AT", "")] == [" "] * 3


@pytest.mark.parametrize(
    "language, text, count",
    [
        ("en", "He met Dr. Smith. He left.", 2),
        ("en", "It starts at 5 p.m. The film is long.", 2),
        ("en-GB", "It starts at 5 p.m. Monday. We wait.", 2),
        ("en", "J. R. R. Tolkien wrote it. We read it.", 2),
        ("de", "Sie kommt am 3. Oktober. Wir warten.", 2),
        ("de", "Wir haben z. B. Äpfel. Er hat nichts.", 2),
        ("en", "It happened in 1990. Then he left.", 2),
        ("de", "Das war 1990. Dann ging er.", 2),
        ("fr", "« Tu viens ? » « Oui. » Il rit.", 3),
        ("xx", "A dog. Dr. Smith. 12 dogs. eBay.", 4),
        ("en", "Two dogs run. A child is splashing in the water A dog barks.", 3),
        ("en", "I got an A in French. We need vitamin A daily. If plan A fails. Is plan A in use?", 4),
        ("de", "Er liest die Zeitung Die kleine Stadt. Dann geht er.", 2),
        ("ka", "ეს ძაღლია. ეს კატაა.", 2),
    ],
)
def test_some_boundaries(language, text, count):
    assert len(texts_of(text, language)) == count


def test_white_space_is_that_of_python():
    """`str.strip` must remove all of it; characters that are removed as invisible do not count."""
    spaces = {chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()}
    assert {space for space in spaces if not UNPRINTABLE.search(space)} == set(
        re.findall(WHITE_SPACE, "".join(map(chr, range(0x4000))))
    )
    assert all(repair(f"a{each}b") == "a b" for each in "\n\r\v\f\x85\u2028" if BREAK.fullmatch(each))


@given(st.lists(st.sampled_from(["A dog", ".", "! ", " ", "\n", "。", "」", "z. B", "\u00a0", "1", "\x01", "\u200b"])))
def test_nothing_else_is_lost(words):
    text = "".join(words)
    actual = find_sentences(text, "de")
    assert "".join(map("".join, actual)) == re.sub("[\x01\u200b]", "", text).strip()
    assert all(text and text == text.strip() for _, text in actual)
    assert all(not before.strip() for before, _ in actual) and [before for before, _ in actual[:1]] in ([], [""])


@pytest.mark.parametrize("run", ["!", " ", ".", '."', "\u00a0»", " \U0001f600", "。」", "- "])
def test_the_time_for_long_runs_is_not_quadratic(run):
    """Quadratic time would be minutes."""
    text = f"A dog.{run * 30_000}x."
    assert "".join(map("".join, find_sentences(f"{text} B.", "de"))) == f"{text} B."
