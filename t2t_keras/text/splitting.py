"""Splits text that is too long to translate at once."""

import re
from collections.abc import Callable

# A sentence ends with an ending character, any number of closing characters, and a space. The space is required because
# of "3.5" and "12:30", but not after Chinese and Japanese ending characters.
ENDINGS_BEFORE_BLANKS = ".!?;:"
ENDINGS_ALONE = "。！？"
CLOSING_CHARACTERS = "'\")]»“”"

_CLOSERS = f"[{re.escape(CLOSING_CHARACTERS)}]*"
_SENTENCE_END = re.compile(f"[{re.escape(ENDINGS_BEFORE_BLANKS)}]{_CLOSERS} |[{ENDINGS_ALONE}]{_CLOSERS} ?")


def split_text(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Halves a text repeatedly until every piece fits.

    Each cut is in the middle half of a piece: at the end of a sentence if possible, else between words, else in the
    middle. A single character always counts as fitting.

    Args:
        text: the text, with single spaces between words.
        fits: returns whether a piece is short enough.

    Returns:
        The pieces in order, without empty ones.
    """
    text = text.strip()
    if len(text) < 2 or fits(text):
        return [text] if text else []
    cut = _cut(text)
    return split_text(text[:cut], fits) + split_text(text[cut:], fits)


def split_context(text: str, head_end: str, fits: Callable[[str], bool]) -> list[str]:
    """Splits the part of a text after its head as `split_text` does, and puts the head in front of each piece.

    If there is no head, or if the head takes more than about half of a piece, the whole text is split instead.

    Args:
        text: the text.
        head_end: regular expression whose first match ends the head, such as the `<context>` between a question and its
            paragraph.
        fits: returns whether a piece, including the head, is short enough.
    """
    match = re.search(head_end, text)
    head, rest = (text[: match.end()], text[match.end() :]) if match else ("", text)
    if not head or not fits(f"{head} {head}"):
        return split_text(text, fits)
    return [f"{head} {piece}" for piece in split_text(rest, lambda piece: fits(f"{head} {piece}"))] or [text.strip()]


def _cut(text: str) -> int:
    """Returns the position at which to cut a text, after its first and before its last character."""
    middle, quarter = len(text) // 2, len(text) // 4
    for boundary in (_SENTENCE_END, re.compile(" ")):
        places = [match.end() for match in boundary.finditer(text, quarter, len(text) - quarter)]
        places = [place for place in places if 0 < place < len(text)]
        if places:
            return min(places, key=lambda place: abs(place - middle))
    return middle
