"""Splits documents with markup into segments to translate, and fills in the translations."""

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import Literal

from t2t_keras.errors import InputError
from t2t_keras.text.markup.placing import AlignedText, placed
from t2t_keras.text.markup.reading import EditTag, Part, html_parts, xml_parts
from t2t_keras.text.markup.segments import Dialect, Segment, segments
from t2t_keras.text.markup.slots import Slot, Slots
from t2t_keras.text.markup.tag_texts import with_slots
from t2t_keras.text.repair import without_surrogates

Markup = Literal["html", "xml", "placeholders"]


@dataclasses.dataclass(frozen=True)
class MarkedDocument:
    """A document, split into segments to translate and text that stays unchanged.

    Attributes:
        pieces: the segments, and the unchanged text as strings, in order.
        slots: the texts within markup, such as attributes, which markers in the strings stand for.
    """

    pieces: tuple[str | Segment, ...]
    slots: tuple[Slot, ...] = ()

    @classmethod
    def parsed(cls, text: str, markup: Markup, name: str, attributes: Collection[str] = ()) -> "MarkedDocument":
        """Parses a document.

        Args:
            text: the document.
            markup: "html", "xml", or "placeholders" for text with placeholders but without tags, whose line breaks
                separate segments.
            name: name of the document, for messages.
            attributes: names of the attributes to translate, such as "alt".

        Raises:
            InputError: the XML is not well-formed (the message names the document and the line), or there are
                attributes but no tags.
        """
        text = without_surrogates(text)  # `Slots` uses surrogates as markers
        slots = Slots()
        if markup == "placeholders":
            if attributes:
                raise InputError("markup_attributes needs the markup 'html' or 'xml', not 'placeholders'")
            pieces = segments([Part("text", text)], slots, Dialect(is_escaped=False, keeps_lines=True))
            return cls(tuple(pieces), tuple(slots))
        names = frozenset(attribute.lower() for attribute in attributes)
        edit_tag: EditTag | None = (lambda part: with_slots(part, names, slots)) if names else None
        parts = html_parts(text, edit_tag) if markup == "html" else xml_parts(text, name, edit_tag)
        return cls(tuple(segments(parts, slots)), tuple(slots))

    @property
    def segments(self) -> list[Segment]:
        """The segments to translate: first those of the text, then those within markup."""
        groups = [self.pieces, *(slot.pieces for slot in self.slots)]
        return [piece for pieces in groups for piece in pieces if isinstance(piece, Segment)]

    def filled(self, translations: Sequence[AlignedText]) -> str:
        """Returns the document with each segment replaced by its translation.

        Args:
            translations: the translation of each of `segments`.
        """
        remaining: Iterator[AlignedText] = iter(translations)

        def fill(pieces: Sequence[str | Segment]) -> str:
            return "".join(piece if isinstance(piece, str) else placed(piece, next(remaining)) for piece in pieces)

        document = fill(self.pieces)
        values: list[str] = []  # a slot contains markers of earlier slots only
        for slot in self.slots:
            value = Slots.filled(fill(slot.pieces), values)
            is_quoted = slot.unquoted is not None and value != slot.unquoted
            values.append(f'"{value}"' if is_quoted else value)
        return Slots.filled(document, values)
