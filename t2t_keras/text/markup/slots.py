"""Holds the places of texts within markup, such as attributes of tags and sub-messages of placeholders."""

import dataclasses
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from t2t_keras.text.markup.segments import Segment

# Lone surrogates, which no valid text contains.
_START, _END = "\ud800", "\udfff"
_MARKER = re.compile(f"{_START}([0-9]+){_END}")


@dataclasses.dataclass(frozen=True)
class Slot:
    """A text within markup.

    Attributes:
        pieces: segments to translate and unchanged text, in order.
        unquoted: the raw value of an attribute without quotes, so that a different value gets quotes; None for other
            texts.
    """

    pieces: "Sequence[str | Segment]"
    unquoted: str | None = None


class Slots:
    """The texts within the markup of a document, each represented by a marker in the raw markup."""

    def __init__(self) -> None:
        self._slots: list[Slot] = []

    def add(self, slot: Slot) -> str:
        """Returns the marker of a text, or the text itself if there is nothing to translate."""
        if all(isinstance(piece, str) for piece in slot.pieces):
            return "".join(map(str, slot.pieces))
        self._slots.append(slot)
        return f"{_START}{len(self._slots) - 1}{_END}"

    def __iter__(self):
        return iter(self._slots)

    @staticmethod
    def filled(raw: str, values: Sequence[str]) -> str:
        """Replaces the markers in raw markup with the values of their slots, as far as these are known."""
        return _MARKER.sub(lambda match: values[int(match[1])], raw)
