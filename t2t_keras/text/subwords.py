"""The subword tokenizer of tensor2tensor, which is greedy and reversible.

A text is first split where letters and digits meet other characters. In each part, rare characters are escaped as
numbers, and an underscore is appended. The part is then split greedily into subwords, from left to right, each as long
as possible.
"""

import itertools
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from t2t_keras.symbols import SPECIAL, UNK_ID

MAGIC = b"t2t_keras subwords 1\n"
FIRST_ID = UNK_ID + 1  # of the subwords; earlier ids are padding, end and unknown (which is never produced)

_ESCAPING = "\\_u;0123456789"  # characters that occur in escapes
_ESCAPES = re.compile(r"\\u|\\\\|\\([0-9]+);")
UNKNOWN = "\u3013"  # replaces an escaped number that is not a character
LAST_CHARACTER = 0x10FFFF


class Subwords:
    """Encodes and decodes text, with the methods of a SentencePiece processor that `Tokenizer` uses.

    Args:
        serialized: `MAGIC`, followed by the subwords, one per line, in the order of their ids from `FIRST_ID` on.

    Attributes:
        subwords: the subwords, in the order of their ids.
        alphabet: the characters that need no escaping.

    Raises:
        ValueError: `serialized` does not begin with `MAGIC`, or a character of the alphabet is not a subword.
    """

    def __init__(self, serialized: bytes) -> None:
        if not serialized.startswith(MAGIC):
            raise ValueError(f"serialized must begin with {MAGIC!r}")
        self.subwords = serialized[len(MAGIC) :].decode("utf-8").split("\n")[:-1]
        self._entries = [*SPECIAL, *self.subwords]
        self._ids = {subword: FIRST_ID + place for place, subword in reversed(list(enumerate(self.subwords)))}
        self._longest = max(map(len, self.subwords), default=0)
        self.alphabet = set("".join(self.subwords)) | set(_ESCAPING)
        if missing := [character for character in sorted(self.alphabet) if character not in self._ids]:
            raise ValueError(
                f"each character in use and each of {_ESCAPING} must be a subword; missing: {missing[0]!r}"
            )

    def __len__(self) -> int:
        return FIRST_ID + len(self.subwords)

    def id_to_piece(self, token: int) -> str:
        return self._entries[token]

    def encode(self, text: str | Sequence[str], **_: Any) -> Any:
        """Returns the token ids of a text, or a list of token ids for each of several texts."""
        if not isinstance(text, str):
            return [self.encode(each) for each in text]
        return [token for part in parts_of(text) for token in self._cut(self._escape(part))]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of token ids; special ids are ignored."""
        text = "".join(self.subwords[token - FIRST_ID] for token in ids if token >= FIRST_ID)
        return joined_parts([_unescape(part) for part in text.split("_") if part])

    def _escape(self, part: str) -> str:
        part = part.replace("\\", "\\\\").replace("_", "\\u")
        characters = (c if c in self.alphabet and c != "\n" else f"\\{ord(c)};" for c in part)
        return "".join(characters) + "_"

    def _cut(self, escaped: str) -> Iterable[int]:
        start = 0
        while start < len(escaped):
            end = min(len(escaped), start + self._longest)
            while escaped[start:end] not in self._ids:
                end -= 1
            yield self._ids[escaped[start:end]]
            start = end


def serialized_subwords(subwords: Iterable[str]) -> bytes:
    """Returns the serialized form for `Subwords`; raises a ValueError if a subword is empty or has a line break."""
    lines = list(subwords)
    if invalid := [line for line in lines if "\n" in line or not line]:
        raise ValueError(f"a subword cannot be {invalid[0]!r}")
    return MAGIC + "".join(f"{line}\n" for line in lines).encode("utf-8")


def parts_of(text: str) -> list[str]:
    """Splits a text into runs of letters and digits and runs of other characters, without single spaces in between."""
    runs = ["".join(characters) for _, characters in itertools.groupby(text, _is_alphanumeric)]
    return [run for place, run in enumerate(runs) if run != " " or place in (0, len(runs) - 1)]


def joined_parts(parts: Sequence[str]) -> str:
    """Joins parts with a space between two runs of letters and digits; the inverse of `parts_of`."""
    kinds = [_is_alphanumeric(part[:1]) for part in parts]
    spaces = ["", *(" " * (left and right) for left, right in itertools.pairwise(kinds))]
    return "".join(space + part for space, part in zip(spaces, parts, strict=False))


def _is_alphanumeric(character: str) -> bool:
    return bool(character) and unicodedata.category(character)[0] in "LN"


def _unescape(part: str) -> str:
    def plain(match: re.Match[str]) -> str:
        if match[1] is None:
            return "_" if match[0] == "\\u" else "\\"
        number = int(match[1])
        return chr(number) if number <= LAST_CHARACTER else UNKNOWN

    return _ESCAPES.sub(plain, part)
