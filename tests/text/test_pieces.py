"""Pieces of words: where words begin, and how they are shown."""

import hypothesis
import tiny
from hypothesis import strategies

from t2t_keras.text.pieces import readable, word_starts
from t2t_keras.text.repair import repair


# U+2581 itself means a blank to the tokenizer.
@hypothesis.given(strategies.text(strategies.characters(exclude_characters="▁", exclude_categories=["Cs"])))
@hypothesis.settings(deadline=None)
def test_words_are_what_blanks_separate(text):
    text = repair(text)
    pieces = tiny.tokenizer().pieces(tiny.tokenizer().encode(text))
    assert len(word_starts(pieces)) == len([word for word in text.split(" ") if word])


def test_pieces_for_a_reader():
    pieces = ["<s>", "▁A", "▁play", "house", ",", "▁", "▁3", "5", "<0xE7>", "<0x41>", "<unk>", "ß", "</s>"]
    shown = ["<start>", "A", "play", "·house", ",", "␣", "3", "·5", "<0xE7>", "A", "<unknown>", "·ß", "<end>"]
    assert readable(pieces) == shown
    assert readable(["house", "s"]) == ["house", "·s"]
    assert readable([]) == []
