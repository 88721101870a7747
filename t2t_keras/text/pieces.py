"""Interprets vocabulary entries (pieces), and formats them for readers."""

import re
from collections.abc import Sequence

BLANK = "▁"  # stands for a space in entries; SentencePiece also puts one in front of each text
END = "</s>"  # entry of the end symbol; the same characters in a text become different tokens
START = "<s>"  # shown for the first input of the decoder, which has no entry in the vocabulary

_SYMBOLS = {END: "<end>", START: "<start>", "<unk>": "<unknown>", "<pad>": "<padding>"}
_BYTE = re.compile("<0x([0-9A-F]{2})>")
_CONTINUES = "·"  # shown before a piece that continues a word
_SHOWN_SPACE = "␣"


def byte_of(piece: str) -> int | None:
    """Returns the byte that an entry stands for; None if the entry consists of characters."""
    match = _BYTE.fullmatch(piece)
    return int(match[1], 16) if match else None


def word_starts(pieces: Sequence[str]) -> list[int]:
    """Returns the positions of the tokens that begin a word, in a sentence without an end symbol."""
    return [index for index, piece in enumerate(pieces) if index == 0 or piece.startswith(BLANK)]


def places_of(text: str, pieces: Sequence[str]) -> list[int]:
    """Returns the positions of the tokens that spell a text without spaces, such as a word, for all its occurrences."""
    places: list[int] = []
    for start in range(len(pieces)):
        spelling, end = "", start
        while end < len(pieces) and text.startswith(spelling) and spelling != text:
            spelling += _without_space(pieces[end]) if end == start else pieces[end]
            end += 1
        if spelling == text:
            places += [place for place in range(start, end) if place not in places]
    return places


def readable(pieces: Sequence[str]) -> list[str]:
    """Formats the pieces of a sentence for readers.

    For example, "▁play", "house", "." and "</s>" become "play", "·house", "." and "<end>".
    """
    return [_readable(piece, index == 0) for index, piece in enumerate(pieces)]


def _readable(piece: str, is_first: bool) -> str:
    if piece in _SYMBOLS:
        return _SYMBOLS[piece]
    if (byte := byte_of(piece)) is not None:
        character = chr(byte)
        return character if "!" <= character <= "~" else piece
    if piece.startswith(BLANK):
        return _without_space(piece) or _SHOWN_SPACE
    # Punctuation needs no sign that it follows a word without a space.
    continues_word = not is_first and piece[:1].isalnum()
    return f"{_CONTINUES if continues_word else ''}{piece.replace(BLANK, _SHOWN_SPACE)}"


def _without_space(piece: str) -> str:
    """Returns the text of a piece without its spaces."""
    return piece.replace(BLANK, "")
