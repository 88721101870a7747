"""Splits text that is too long to be translated in one piece."""

import re
from collections.abc import Callable

# A sentence ends with one of the ending characters, any number of closing characters and a blank, without which "3.5"
# and "12:30" have none; after those of Chinese and Japanese it may be missing.
ENDINGS_BEFORE_BLANKS = ".!?;:"
ENDINGS_ALONE = "。！？"
CLOSING_CHARACTERS = "'\")]»“”"

_CLOSED = f"[{re.escape(CLOSING_CHARACTERS)}]*"
_SENTENCE_END = re.compile(f"[{re.escape(ENDINGS_BEFORE_BLANKS)}]{_CLOSED} |[{ENDINGS_ALONE}]{_CLOSED} ?")


def split_text(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Halves a text (single blanks between words) until every piece fits; returns the non-blank pieces in order.

    Each cut is in the middle half of a piece: at the end of a sentence if possible, else between words, else anywhere.
    A single character counts as fitting, whatever `fits` returns.
    """
    text = text.strip()
    if len(text) < 2 or fits(text):
        return [text] if text else []
    cut = _cut(text)
    return split_text(text[:cut], fits) + split_text(text[cut:], fits)


def split_context(text: str, head_end: str, fits: Callable[[str], bool]) -> list[str]:
    """Splits a text behind its head as `split_text`, and puts the head in front of each piece.

    The head ends with the first match of the regular expression `head_end`, such as the `<context>` between a question
    and its paragraph. `fits` is asked about whole pieces. Without a head, or if two of them would not fit, `text` is
    split as any other.
    """
    match = re.search(head_end, text)
    head, rest = (text[: match.end()], text[match.end() :]) if match else ("", text)
    if not head or not fits(f"{head} {head}"):
        return split_text(text, fits)
    return [f"{head} {piece}" for piece in split_text(rest, lambda piece: fits(f"{head} {piece}"))] or [text.strip()]


def _cut(text: str) -> int:
    """A position between the first and the last character."""
    middle, quarter = len(text) // 2, len(text) // 4
    for boundary in (_SENTENCE_END, re.compile(" ")):
        places = [match.end() for match in boundary.finditer(text, quarter, len(text) - quarter)]
        places = [place for place in places if 0 < place < len(text)]
        if places:
            return min(places, key=lambda place: abs(place - middle))
    return middle
