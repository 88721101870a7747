"""The vocabulary's entries, as they are and as a reader likes to see them."""

import re
from collections.abc import Sequence

BLANK = "▁"  # how entries write a blank, of which one more begins each text
END = "</s>"  # the end symbol as an entry; the same characters in a text become other tokens
START = "<s>"  # what the decoder reads first; the vocabulary has no entry for it

_SYMBOLS = {END: "<end>", START: "<start>", "<unk>": "<unknown>", "<pad>": "<padding>"}
_BYTE = re.compile("<0x([0-9A-F]{2})>")
_CONTINUES = "·"  # shown before what goes on a word
_SHOWN_BLANK = "␣"


def byte_of(piece: str) -> int | None:
    """The byte that an entry stands for; None for one of characters."""
    match = _BYTE.fullmatch(piece)
    return int(match[1], 16) if match else None


def word_starts(pieces: Sequence[str]) -> list[int]:
    """The positions of the tokens that begin a word, in a sentence without end symbol."""
    return [index for index, piece in enumerate(pieces) if index == 0 or piece.startswith(BLANK)]


def places_of(text: str, pieces: Sequence[str]) -> list[int]:
    """The positions of all tokens with which pieces spell a word, or any other text without blanks; each time."""
    places: list[int] = []
    for start in range(len(pieces)):
        spelled, end = "", start
        while end < len(pieces) and text.startswith(spelled) and spelled != text:
            spelled += _without_blank(pieces[end]) if end == start else pieces[end]
            end += 1
        if spelled == text:
            places += [place for place in range(start, end) if place not in places]
    return places


def readable(pieces: Sequence[str]) -> list[str]:
    """One sentence's pieces for a reader: "▁play", "house", "." and "</s>" become "play", "·house", "." and "<end>"."""
    return [_readable(piece, index == 0) for index, piece in enumerate(pieces)]


def _readable(piece: str, is_first: bool) -> str:
    if piece in _SYMBOLS:
        return _SYMBOLS[piece]
    if (byte := byte_of(piece)) is not None:
        character = chr(byte)
        return character if "!" <= character <= "~" else piece
    if piece.startswith(BLANK):
        return _without_blank(piece) or _SHOWN_BLANK
    # Punctuation needs no sign that it goes on a word.
    goes_on = not is_first and piece[:1].isalnum()
    return f"{_CONTINUES if goes_on else ''}{piece.replace(BLANK, _SHOWN_BLANK)}"


def _without_blank(piece: str) -> str:
    """What a piece spells after a blank."""
    return piece.replace(BLANK, "")
