import sys
import unicodedata

import pytest

from t2t_keras.data.cleaning import REASONS, Cleaner, HeldOut, comparison_key, is_damaged, length_reason
from t2t_keras.text.repair import lowercased, repair


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("a plain sentence", "a plain sentence"),
        ("  blanks   within ", "blanks within"),
        ("a\tb\rc\x0bd\x0ce\x1cf", "a b c d e f"),
        ("next\x85line, line\u2028and paragraph\u2029separator", "next line, line and paragraph separator"),
        ("zero\u200bwidth \ufeffmark soft\u00adhyphen", "zerowidth mark softhyphen"),
        ("\u202eright to left\u202c", "right to left"),
        ("bell\x07 and null\x00", "bell and null"),
        ("\u200b", ""),
        ("non-breaking\u00a0space stays", "non-breaking\u00a0space stays"),
        ("joiners stay: می\u200cخواهم 👨\u200d👩", "joiners stay: می\u200cخواهم 👨\u200d👩"),
    ],
)
def test_repair_keeps_a_sentence_on_its_line(raw, clean):
    assert repair(raw) == clean
    assert len(clean.splitlines()) <= 1


@pytest.mark.parametrize("text", ["caf\ufffd", "null\x00", "wrong \x93quotes\x94", "\ue000", "\uffff"])
def test_damaged_text_is_detected(text):
    assert is_damaged(text)


@pytest.mark.parametrize("text", ["Größe ½ “x” 日本語 😀", "a\tb\r", "zero\u200bwidth"])
def test_text_that_can_be_repaired_is_not_damaged(text):
    assert not is_damaged(text)


def test_comparison_ignores_case_blanks_punctuation_and_the_encoding_of_characters():
    assert comparison_key("The  cat, sleeps!") == comparison_key("the cat sleeps") != comparison_key("the cat slept")
    assert comparison_key("?!") == "?!"
    assert comparison_key("Un cafe\u0301 cre\u0300me") == comparison_key("un café crème")
    assert comparison_key("love \u2764\ufe0f") == comparison_key("love \u2764")
    assert comparison_key("葛\U000e0100 is") == comparison_key("葛 is")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("किताब", "कतब"),  # Hindi: vowels are combining marks
        ("की बात", "के बात"),
        ("บ้าน", "บาน"),  # Thai: so are tones
        ("\U00011013\U00011038", "\U00011013\U0001103a"),  # Brahmi, outside the basic plane
        ("e\u0331", "e"),
    ],
)
def test_comparison_keeps_the_marks_that_make_a_word(one, other):
    assert comparison_key(one) != comparison_key(other)
    assert comparison_key(f"{one}!  {other}") == f"{comparison_key(one)} {comparison_key(other)}"


def test_comparison_keeps_all_marks():
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code))[0] == "M" and "VARIATION" not in unicodedata.name(chr(code)):
            assert comparison_key(f"x{chr(code)}y") == unicodedata.normalize("NFC", f"x{chr(code)}y".casefold()), hex(
                code
            )


def make_held_out(*pairs):
    held_out = HeldOut()
    held_out.add(pairs)
    return held_out


def test_each_reason_is_counted_once():
    pairs = [
        ("one", "eins"),
        ("", "leer"),
        ("only zero-width", "\u200b"),
        ("broken \ufffd", "kaputt"),
        ("same", "same"),
        ("x" * 160, "zu lang"),
        ("Test source!", "anderes"),
        ("other", "Test Ziel"),
        ("one", "ein"),
        ("two\t2", "zwei 2"),
    ]
    cleaner = Cleaner()
    cleaned = list(cleaner.for_training(pairs, 10, make_held_out(("test source", "test ziel"))))
    assert cleaned == [("one", "eins"), ("one", "ein"), ("two 2", "zwei 2")]
    expected = {"empty": 2, "invalid_characters": 1, "identical": 1, "too_long": 1, "held_out": 2}
    assert cleaner.counts == {"read": 10, "kept": 3, "repaired": 2, **dict.fromkeys(REASONS, 0), **expected}


@pytest.mark.parametrize(
    ("pairs", "options", "kept", "dropped"),
    [
        ([("same", "same"), ("\xa0", "blank")], {"keeps_identical": True}, [0], {"empty": 1}),
        ([("a " * 200 + "a", "b"), ("c", "d " * 200)], {"cuts_sources": True}, [0], {"too_long": 1}),
        (
            [("<2de> Admin", "Admin"), ("<2de>", "leer"), ("<2de> dog", "Hund"), ("<2defg> a", "<2defg> a")],
            {"held_out": HeldOut(tags=("<2de>",))},  # Tags are not part of the text.
            [2],
            {"empty": 1, "identical": 2},
        ),
    ],
)
def test_options_keep_pairs_that_are_otherwise_dropped(pairs, options, kept, dropped):
    cleaner = Cleaner()
    actual = list(cleaner.for_training(pairs, 10, **{"held_out": HeldOut(), **options}))
    assert actual == [pairs[number] for number in kept]
    assert {reason: cleaner.counts[reason] for reason in REASONS if cleaner.counts[reason]} == dropped


def test_a_single_side_can_be_held_out():
    held_out = HeldOut((0,))
    held_out.add([("a question", "an answer")])
    assert ("A question?", "other") in held_out and ("other", "an answer") not in held_out


def test_counts_add_up_to_the_pairs_read():
    pairs = [("a" * n, "b" * (n % 5)) for n in range(100)] * 2
    cleaner = Cleaner()
    cleaned = list(cleaner.for_training(pairs, 4, HeldOut()))
    assert len(cleaned) == cleaner.counts["kept"] > 0
    assert cleaner.counts["read"] == 200 == cleaner.counts["kept"] + sum(cleaner.counts[reason] for reason in REASONS)


def test_evaluation_pairs_are_repaired_but_never_dropped():
    pairs = [("", ""), ("same", "same"), ("x" * 100_000, "bro\x00ken\ufffd"), ("a\rb", "c\u2028d"), ("same", "same")]
    cleaner = Cleaner()
    cleaned = list(cleaner.for_evaluation(pairs))
    assert cleaned == [("", ""), ("same", "same"), ("x" * 100_000, "broken\ufffd"), ("a b", "c d"), ("same", "same")]
    assert cleaner.counts == {"read": 5, "kept": 5, "repaired": 2}


def test_lowercasing_treats_each_character_independently():
    characters = [chr(code) for code in range(sys.maxunicode + 1)]
    text = "".join(characters) + "ΟΔΟΣ ΣΑΣ. İI"
    assert lowercased(text) == "".join(character.lower() for character in text)
    assert lowercased("ΟΔΟΣ") == "οδοσ", "str.lower treats a final sigma differently"
    cleaner = Cleaner(lowercase="both")
    assert list(cleaner.for_evaluation([("ΟΔΟΣ", "A")])) == [("οδοσ", "a")]
    assert list(Cleaner(lowercase="source").for_evaluation([("ΟΔΟΣ", "A")])) == [("οδοσ", "A")]


def test_lowercasing_comes_first():
    cleaner = Cleaner(lowercase="both")
    pairs = [("HALLO", "hallo"), ("Big Öl", "GROẞ")]
    assert list(cleaner.for_training(pairs, 10, HeldOut())) == [("big öl", "groß")]
    assert (cleaner.counts["identical"], cleaner.counts["repaired"]) == (1, 0)


@pytest.mark.parametrize(
    ("lengths", "reason"),
    [((10, 10), None), ((11, 10), "too_long"), ((10, 11), "too_long"), ((2, 8), None), ((9, 2), "length_ratio")],
)
def test_length_limits(lengths, reason):
    assert length_reason(*lengths, max_length=10, max_length_ratio=4.0) == reason
