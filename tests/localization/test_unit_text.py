"""Texts of units: accelerators, arguments, markup and line breaks."""

import pytest

from t2t_keras.localization.units import Style
from tests.localization.fake_translations import (
    AlignedText,
    double_words,
    reverse_words,
    translate_text,
    unchanged,
    upper,
)

MENU = Style(accelerators="&_")
NUMBERED = Style(numbers_arguments=True)
CUE = Style(joins="all", line_limit=42)


@pytest.mark.parametrize(
    ("text", "translation", "expected"),
    [
        ("&Open the file", "Datei öffnen", "Datei &öffnen"),
        ("&Print", "Drucken", "&Drucken"),
        ("E&xit", "Beenden", "&Beenden"),
        ("E_xit", "Exit", "E_xit"),
        ("Save _As", "Speichern als", "Speichern _als"),
        ("AT&T phone", "Telefon von AT&T", "Telefon von AT&T"),
        ("Open file_name", "Öffne file_name", "Öffne file_name"),
        ("A && B", "B && A", "B && A"),
        ("_One or _two", "Eins oder zwei", "Eins oder zwei"),
        ("See https://x.org?a=1&b=2", "Siehe", "Siehe https://x.org?a=1&b=2"),
    ],
)
def test_accelerators(text, translation, expected):
    # "ö" is not "o": the accelerator must be an ASCII letter, or else the first letter.
    expected = expected.replace("Datei &öffnen", "&Datei öffnen")
    assert translate_text(text, MENU, lambda _: AlignedText(translation, ())) == expected


@pytest.mark.parametrize(
    ("text", "style", "expected"),
    [
        ("Copied %s to %d files", NUMBERED, "%2$d files %1$s to Copied"),
        ("Copied %s to %d files", Style(), "%s files %d to Copied"),
        ("Copied %*d to %s files", NUMBERED, "%*d files %s to Copied"),
        ("Copied {} to {:>8} files", Style(), "{1:>8} files {0} to Copied"),
        ("Copied %1$s to %2$d files", NUMBERED, "%2$d files %1$s to Copied"),
        ("Copied %1 to %L2 files", Style(), "%L2 files %1 to Copied"),
        ("Copied %(a)s to {b} files", Style(), "{b} files %(a)s to Copied"),
        ("100% of dogs", NUMBERED, "dogs of 100"),
    ],
)
def test_reordered_arguments(text, style, expected):
    assert translate_text(text, style, reverse_words) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A <b>big</b> dog &amp; cat", "A <b>BIG</b> DOG &amp; CAT"),
        ("Use <name> to go", "USE <name> TO GO"),
        ("<0>A dog</0> runs<1/> & barks", "<0>A DOG</0> RUNS<1/> & BARKS"),
        ("<link>A dog</link> in <code>x y</code>", "<link>A DOG</link> IN <code>x y</code>"),
        ("One<br/>two", "ONE<br/>TWO"),
        ("if a < b & c > d", "IF A < B & C > D"),
        ("Now %1 & %n dogs {count}", "NOW %1 & %n DOGS {count}"),
        ("  A dog.\n\n- B\n", "  A DOG.\n\n- B\n"),
        (
            "See https://x.org/{id}/a%20b?c=1&d, or (http://y.org).",
            "SEE https://x.org/{id}/a%20b?c=1&d, OR (http://y.org).",
        ),
        ("&lt;https://x.org&gt; <b>x</b>", "&lt;https://x.org&gt; <b>X</b>"),
        ("https://x.org", "https://x.org"),
        ("%d", "%d"),
        ("", ""),
    ],
)
def test_markup_is_kept(text, expected):
    assert translate_text(text, Style(), upper) == expected
    assert translate_text(text, Style(), unchanged) == text


def test_a_tag_around_words_moves_with_them():
    assert translate_text("see <a href='x.html'>the dogs</a> run", None, reverse_words) == (
        "run <a href='x.html'>dogs the</a> see"
    )


def test_lines_of_a_cue_are_one_sentence():
    texts = []

    def translate(text):
        texts.append(text)
        return double_words(text)

    cue = "<i>A dog runs across\nthe lawn.</i>\n- Here is one\nmore."
    assert translate_text(cue, CUE, translate) == (
        "<i>A A dog dog runs runs across across\nthe the lawn lawn.</i>\n- Here Here is is one one\nmore more."
    )
    assert texts == ["A dog runs across the lawn.", "Here is one more."]


def test_markers_of_lines_are_not_translated():
    texts = []
    for style, text in ((CUE, "-Yes.\n♪ La la"), (Style(), "To do:\n 1. Run\n* Eat\n-h or 3.5")):
        translate_text(text, style, lambda text: (texts.append(text), unchanged(text))[1])
    assert texts == ["Yes.", "La la", "To do:", "Run", "Eat", "-h or 3.5"]
    assert translate_text("- Two dogs", None, reverse_words) == "- dogs Two"


def test_lines_of_messages_are_sentences_unless_they_were_wrapped():
    wrapped = "This is a long line of a help text that was wrapped at\nthe margin.\n  -h shows\nthis"
    texts = []
    translate_text(wrapped, Style(), lambda text: (texts.append(text), unchanged(text))[1])
    assert texts == [wrapped.split("\n  ")[0].replace("\n", " "), "-h shows", "this"]
