"""Cuts text that is too long to be translated in one piece."""

import re
from collections.abc import Callable

# The end of a sentence within a line, where a line that is too long is best cut: one of the first characters, any
# number of the second, perhaps a blank.
ENDING_CHARACTERS = ".!?;:。！？"
CLOSING_CHARACTERS = "'\")]»“”"

_SENTENCE_END = re.compile(f"[{re.escape(ENDING_CHARACTERS)}][{re.escape(CLOSING_CHARACTERS)}]* ?")


def split_text(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Cuts a text in halves until every piece fits.

    A cut is made in the middle half of a piece: at the end of a sentence if there is
    one, else between words, else anywhere.

    Args:
        text: with single blanks between words.
        fits: whether a piece is short enough; a single character is taken whatever it says.

    Returns:
        The pieces in order, none of them blank.
    """
    text = text.strip()
    if len(text) < 2 or fits(text):
        return [text] if text else []
    cut = _cut(text)
    return split_text(text[:cut], fits) + split_text(text[cut:], fits)


def _cut(text: str) -> int:
    """A place between the first and the last character."""
    middle, quarter = len(text) // 2, len(text) // 4
    for boundary in (_SENTENCE_END, re.compile(" ")):
        places = [match.end() for match in boundary.finditer(text, quarter, len(text) - quarter)]
        places = [place for place in places if 0 < place < len(text)]
        if places:
            return min(places, key=lambda place: abs(place - middle))
    return middle
