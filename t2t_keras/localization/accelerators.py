"""Moves the keyboard accelerator of a menu entry, such as the "&" of "E&xit", into the translation."""

import dataclasses
import re
from collections.abc import Sequence

from t2t_keras.text.languages import east_asian
from t2t_keras.text.markup.reading import Part

_TRAILING = re.compile(r"[\s.:…。：]*$")


@dataclasses.dataclass(frozen=True)
class Accelerator:
    """The marker of an accelerator and the letter after it."""

    marker: str
    letter: str

    def restored(self, pieces: Sequence[str], language: str) -> list[str]:
        """Inserts the marker into a translation.

        The marker goes before the same letter, if possible at the start of a word. Without this letter, it goes before
        the first letter of the translation, or in Chinese, Japanese and Korean after the text, as "(&X)".

        Args:
            pieces: the text of the translation between inline elements.
            language: language code of the translation.
        """
        letter = re.escape(self.letter)
        added = f"({self.marker}{self.letter.upper()})"
        patterns = [rf"(?i)(?<![\w&]){letter}", rf"(?i)(?<!&){letter}"]
        for pattern in [*patterns, *([] if east_asian(language) else [r"[^\W_]"])]:
            for number, piece in enumerate(pieces):
                if match := re.search(pattern, piece):
                    return _inserted(pieces, number, match.start(), self.marker)
        for number in reversed(range(len(pieces))):
            if pieces[number].strip() and (match := _TRAILING.search(pieces[number])):
                return _inserted(pieces, number, match.start(), added)
        return list(pieces)


def without_accelerator(parts: Sequence[Part], markers: str) -> tuple[Accelerator | None, tuple[Part, ...]]:
    """Removes the accelerator from the text of a unit, if there is exactly one.

    A marker within a word counts only before a lowercase letter, and "_" only in a word that begins with a capital, as
    in "E_xit". Entities and the parameters of URLs are not accelerators.
    """
    text = "".join(part.raw for part in parts if part.kind == "text")
    if not markers or "://" in text:
        return None, tuple(parts)
    either = f"[{re.escape(markers)}]"
    pattern = re.compile(rf"(?:(?<![\w&]){either}(?=[^\W_])|(?<=[^\W\d_]){either}(?=[a-z]))(?!#?\w+;)")
    matches = [match for match in pattern.finditer(text) if _is_accelerator(text, match.start())]
    if len(matches) != 1:
        return None, tuple(parts)
    marker, letter = matches[0][0], text[matches[0].end()]
    place = matches[0].start()
    result = []
    for part in parts:
        if part.kind == "text":
            if 0 <= place < len(part.raw):
                part = dataclasses.replace(part, raw=part.raw[:place] + part.raw[place + 1 :])
                place = -1
            elif place >= 0:
                place -= len(part.raw)
        result.append(part)
    return Accelerator(marker, letter), tuple(result)


def _is_accelerator(text: str, place: int) -> bool:
    word_start = re.search(r"\w*$", text[:place])
    before = word_start[0] if word_start else ""
    return text[place] != "_" or not before or before[0].isupper()


def _inserted(pieces: Sequence[str], number: int, place: int, text: str) -> list[str]:
    return [each[:place] + text + each[place:] if n == number else each for n, each in enumerate(pieces)]
