"""Pieces: the starts of words, and their form for readers."""

import hypothesis
from hypothesis import strategies

from t2t_keras.text.pieces import places_of, readable, word_starts
from t2t_keras.text.repair import repair
from tests.inference import tiny


# The tokenizer uses U+2581 for a blank.
@hypothesis.given(strategies.text(strategies.characters(exclude_characters="▁", exclude_categories=["Cs"])))
@hypothesis.settings(deadline=None)
def test_blanks_separate_words(text):
    text = repair(text)
    pieces = tiny.tokenizer().pieces(tiny.tokenizer().encode(text))
    assert len(word_starts(pieces)) == len([word for word in text.split(" ") if word])


def test_pieces_for_a_reader():
    pieces = ["<s>", "▁A", "▁play", "house", ",", "▁", "▁3", "5", "<0xE7>", "<0x41>", "<unk>", "ß", "</s>"]
    shown = ["<start>", "A", "play", "·house", ",", "␣", "3", "·5", "<0xE7>", "A", "<unknown>", "·ß", "<end>"]
    assert readable(pieces) == shown
    assert readable(["house", "s"]) == ["house", "·s"]
    assert readable([]) == []


def test_where_a_word_is():
    pieces = ["▁the", "▁play", "house", ",", "▁the", "▁play", "▁house", "s", "</s>"]
    assert places_of("the", pieces) == [0, 4]
    assert places_of("play", pieces) == [1, 5]
    assert places_of("playhouse", pieces) == [1, 2]
    assert places_of("playhouse,", pieces) == [1, 2, 3]
    assert places_of("house", pieces) == [2, 6]
    assert places_of("houses", pieces) == [6, 7]
    assert places_of("playhouses", pieces) == places_of("th", pieces) == places_of("x", pieces) == []
