"""Texts of units: accelerators, arguments, markup and line breaks."""

import pytest

from t2t_keras.localization.units import Style, with_backslashes, without_backslashes
from tests.localization.fake_translations import AlignedText, backwards, longer, same, translated_text, upper

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
    # "ö" is no "o": the accelerator goes to a letter that the keyboard has, or to the first one.
    expected = expected.replace("Datei &öffnen", "&Datei öffnen")
    assert translated_text(text, MENU, lambda _: AlignedText(translation, ())) == expected


def test_accelerators_in_japanese_follow_the_text():
    assert translated_text("&File...", MENU, lambda _: AlignedText("ファイル...", ()), "ja") == "ファイル(&F)..."
    assert translated_text("&DVD", MENU, lambda _: AlignedText("DVD再生", ()), "ja") == "&DVD再生"


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
def test_arguments_in_a_new_order(text, style, expected):
    assert translated_text(text, style, backwards) == expected


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
def test_markup_stays(text, expected):
    assert translated_text(text, Style(), upper) == expected
    assert translated_text(text, Style(), same) == text


def test_a_tag_around_words_moves_with_them():
    assert translated_text("see <a href='x.html'>the dogs</a> run", None, backwards) == (
        "run <a href='x.html'>dogs the</a> see"
    )


def test_lines_of_a_cue_are_one_sentence():
    read = []

    def translate(text):
        read.append(text)
        return longer(text)

    cue = "<i>A dog runs across\nthe lawn.</i>\n- Here is one\nmore."
    assert translated_text(cue, CUE, translate) == (
        "<i>A A dog dog runs runs across across\nthe the lawn lawn.</i>\n- Here Here is is one one\nmore more."
    )
    assert read == ["A dog runs across the lawn.", "Here is one more."]


def test_markers_of_lines_are_not_translated():
    read = []
    for style, text in ((CUE, "-Yes.\n♪ La la"), (Style(), "To do:\n 1. Run\n* Eat\n-h or 3.5")):
        translated_text(text, style, lambda text: (read.append(text), same(text))[1])
    assert read == ["Yes.", "La la", "To do:", "Run", "Eat", "-h or 3.5"]
    assert translated_text("- Two dogs", None, backwards) == "- dogs Two"


def test_lines_of_a_cue_have_a_limit():
    text = translated_text("A brown dog is running\nover the lawn today.", CUE, lambda s: AlignedText(f"{s} " * 3, ()))
    assert len(text.split("\n")) == 4
    assert all(len(line) <= 45 for line in text.split("\n"))


def test_lines_of_messages_are_sentences_unless_they_were_wrapped():
    wrapped = "This is a long line of a help text that was wrapped at\nthe margin.\n  -h shows\nthis"
    read = []
    translated_text(wrapped, Style(), lambda text: (read.append(text), same(text))[1])
    assert read == [wrapped.split("\n  ")[0].replace("\n", " "), "-h shows", "this"]


def test_backslashes():
    assert without_backslashes(r"a\n\"b\"\\\t\u00e9\x41\101 \ud83d\ude00 \q") == 'a\n"b"\\\té' + "AA 😀 q"
    assert with_backslashes('a\n"\\\t', '"') == r"a\n\"\\\t"
    assert without_backslashes(r"\ud83d") == "\ufffd"
