"""Words in texts and in the entries of a vocabulary."""

import pytest

from t2t_keras.text.words import continues_word, word_places
from tests.inference import tiny


@pytest.mark.parametrize(
    ("text", "phrase", "places"),
    [
        ("dog dogs dog's hotdog dog", "dog", [0, 9, 22]),
        ("C++ and C", "C++", [0]),
        ("a guide dog", "guide dog", [2]),
        ("a_b a", "a", [4]),
        ("e e\u0301", "e", [0]),
        ("(dog)", "dog", [1]),
        ("aa a", "a", [3]),
        ("a", "", []),
    ],
)
def test_places_of_whole_words(text, phrase, places):
    assert list(word_places(text, phrase)) == places


@pytest.mark.parametrize(
    ("piece", "is_continuation"),
    [("s", True), ("▁s", False), ("▁", False), (".", False), ("ß", True), ("7", True), ("'s", False), ("\u0301", True)],
)
def test_entries(piece, is_continuation):
    assert continues_word(piece) == is_continuation


def test_a_byte_may_be_part_of_a_letter():
    assert [continues_word(f"<0x{byte}>") for byte in ("41", "2E", "C3", "BF")] == [True, False, True, True]


def test_the_entries_of_a_vocabulary():
    tokenizer = tiny.tokenizer()
    pieces = tokenizer.pieces(tokenizer.continuations)
    assert "d" in pieces and "<0xC3>" in pieces
    assert not {"</s>", "<unk>", "<pad>", ".", "▁A"} & set(pieces)
