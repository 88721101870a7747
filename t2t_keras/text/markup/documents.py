"""Splits documents with markup into segments to translate, and fills in the translations."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Literal

from t2t_keras.text.markup.placing import AlignedText, placed
from t2t_keras.text.markup.reading import Part, html_parts, xml_parts
from t2t_keras.text.markup.segments import Segment, segments

Markup = Literal["html", "xml", "placeholders"]


@dataclasses.dataclass(frozen=True)
class MarkedDocument:
    """A document, split into segments to translate and text that stays unchanged.

    Attributes:
        pieces: the segments, and the unchanged text as strings, in order.
    """

    pieces: tuple[str | Segment, ...]

    @classmethod
    def parsed(cls, text: str, markup: Markup, name: str) -> "MarkedDocument":
        """Parses a document.

        Args:
            text: the document.
            markup: "html", "xml", or "placeholders" for a line of text with placeholders but without tags.
            name: name of the document, for messages.

        Raises:
            InputError: the XML is not well-formed; names the document and the line.
        """
        if markup == "placeholders":
            return cls(tuple(segments([Part("text", text)], is_escaped=False)))
        parts = html_parts(text) if markup == "html" else xml_parts(text, name)
        return cls(tuple(segments(parts)))

    @property
    def segments(self) -> list[Segment]:
        """The segments to translate."""
        return [piece for piece in self.pieces if isinstance(piece, Segment)]

    def filled(self, translations: Sequence[AlignedText]) -> str:
        """Returns the document with each segment replaced by its translation."""
        remaining: Iterator[AlignedText] = iter(translations)
        return "".join(piece if isinstance(piece, str) else placed(piece, next(remaining)) for piece in self.pieces)
