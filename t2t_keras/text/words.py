"""Where words begin and end, in texts and in the vocabulary's entries."""

import unicodedata
from collections.abc import Iterator

from t2t_keras.text.languages import CHARACTER
from t2t_keras.text.pieces import BLANK, byte_of


def is_of_word(character: str) -> bool:
    """Whether a character is a letter, a digit, an underscore, or a mark on one of them; no word ends between two."""
    return character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M"


def goes_on_word(piece: str) -> bool:
    """Whether an entry of a vocabulary goes on the word that the entry before it ends with.

    What a byte of several is part of is not known, and taken for a letter.
    """
    if (byte := byte_of(piece)) is not None:
        return byte >= 0x80 or is_of_word(chr(byte))
    return not piece.startswith(BLANK) and is_of_word(piece[0])


def word_places(text: str, phrase: str) -> Iterator[int]:
    """Yields each position in a text where a phrase stands that neither begins nor ends within a word."""
    place = text.find(phrase)
    while phrase and place >= 0:
        if is_apart(text, place) and is_apart(text, place + len(phrase)):
            yield place
        place = text.find(phrase, place + 1)


def is_apart(text: str, place: int) -> bool:
    """Whether a position in a text is not within a word."""
    return not (0 < place < len(text) and is_of_word(text[place - 1]) and is_of_word(text[place]))


def units(text: str) -> list[tuple[int, int]]:
    """The beginnings and ends of a text's words, and of its other characters but blanks, each alone.

    So is each character of Chinese and Japanese, which do not part words.
    """
    found: list[tuple[int, int]] = []
    for place, character in enumerate(text):
        if not character.isspace():
            goes_on = found and found[-1][1] == place and not is_apart(text, place)
            if goes_on and not CHARACTER.search(text, place - 1, place + 1):
                found[-1] = (found[-1][0], place + 1)
            else:
                found.append((place, place + 1))
    return found
