"""Documents with markup: what of them is translated, and the documents that translations make."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Literal

from t2t_keras.text.markup.placing import AlignedText, placed
from t2t_keras.text.markup.reading import Part, html_parts, xml_parts
from t2t_keras.text.markup.segments import Segment, segments

Markup = Literal["html", "xml", "placeholders"]


@dataclasses.dataclass(frozen=True)
class MarkedDocument:
    """A document cut into what stays as it is and what is translated.

    Attributes:
        pieces: both, in order.
    """

    pieces: tuple[str | Segment, ...]

    @classmethod
    def parsed(cls, text: str, markup: Markup, name: str) -> "MarkedDocument":
        """The document of a text: HTML, XML, or a line that has nothing but placeholders.

        Raises:
            InputError: XML that is not well-formed; names the document, called `name`, and the line.
        """
        if markup == "placeholders":
            return cls(tuple(segments([Part("text", text)], is_escaped=False)))
        parts = html_parts(text) if markup == "html" else xml_parts(text, name)
        return cls(tuple(segments(parts)))

    @property
    def segments(self) -> list[Segment]:
        """What is translated."""
        return [piece for piece in self.pieces if isinstance(piece, Segment)]

    def filled(self, translations: Sequence[AlignedText]) -> str:
        """The document with a translation in place of each segment."""
        remaining: Iterator[AlignedText] = iter(translations)
        return "".join(piece if isinstance(piece, str) else placed(piece, next(remaining)) for piece in self.pieces)
