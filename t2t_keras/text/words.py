"""Finds the boundaries of words in text and in vocabulary entries."""

import bisect
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from t2t_keras.text.languages import CHARACTER
from t2t_keras.text.pieces import BLANK, byte_of

_JOINERS = "\u200c\u200d"
_EXTENDER = re.compile(
    f"[{_JOINERS}\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]|(?<=[\U0001f1e6-\U0001f1ff])[\U0001f1e6-\U0001f1ff]"
)

_Range = TypeVar("_Range", bound=tuple[Any, ...])


def is_of_word(character: str) -> bool:
    """Returns whether a character is a letter, digit, underscore or combining mark, and hence part of a word."""
    return character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M"


def is_opening(character: str) -> bool:
    """Returns whether a character is an opening bracket or quote."""
    return unicodedata.category(character) in ("Ps", "Pi")


def is_closing(character: str) -> bool:
    """Returns whether a character is a closing bracket or quote, or another mark such as a comma."""
    return unicodedata.category(character) in ("Po", "Pe", "Pf")


def continues_word(piece: str) -> bool:
    """Returns whether a vocabulary entry continues the word at the end of the preceding token.

    A byte of a multi-byte character is assumed to be part of a letter.
    """
    if (byte := byte_of(piece)) is not None:
        return byte >= 0x80 or is_of_word(chr(byte))
    return not piece.startswith(BLANK) and is_of_word(piece[0])


def word_places(text: str, phrase: str) -> Iterator[int]:
    """Yields the positions of all occurrences of a phrase that neither begin nor end within a word."""
    place = text.find(phrase)
    while phrase and place >= 0:
        if is_apart(text, place) and is_apart(text, place + len(phrase)):
            yield place
        place = text.find(phrase, place + 1)


def is_apart(text: str, place: int) -> bool:
    """Returns whether a position in a text is not within a word."""
    return not (0 < place < len(text) and is_of_word(text[place - 1]) and is_of_word(text[place]))


def is_between_units(text: str, place: int) -> bool:
    """Returns whether a position is not within a word, or next to a Chinese or Japanese character."""
    return is_apart(text, place) or CHARACTER.search(text, place - 1, place + 1) is not None


def units(text: str) -> list[tuple[int, int]]:
    """Returns the start and end of each unit of a text: each word, and each other character that is not white space.

    Chinese and Japanese characters are single units, because these languages do not separate words. Joiners, combining
    marks and modifiers of emoji belong to the character before them.
    """
    ranges: list[tuple[int, int]] = []
    for place, character in enumerate(text):
        if not character.isspace():
            continues = ranges and ranges[-1][1] == place
            if continues and (not is_between_units(text, place) or _extends(text, place)):
                ranges[-1] = (ranges[-1][0], place + 1)
            else:
                ranges.append((place, place + 1))
    return ranges


def disjoint(ranges: Iterable[_Range]) -> list[_Range]:
    """Returns ranges that do not overlap, in the order of the text; of ranges that overlap, the first one is kept.

    Args:
        ranges: tuples that begin with the start and the end of a range, in the order of preference.
    """
    result: list[_Range] = []
    for each in ranges:
        place = bisect.bisect(result, each)
        is_behind = place == 0 or result[place - 1][1] <= each[0]
        if is_behind and (place == len(result) or each[1] <= result[place][0]):
            result.insert(place, each)
    return result


def _extends(text: str, place: int) -> bool:
    """Returns whether a character is displayed together with the one before it."""
    if unicodedata.category(text[place])[0] == "M" or _EXTENDER.match(text, place):
        return True
    return text[place - 1] in _JOINERS
