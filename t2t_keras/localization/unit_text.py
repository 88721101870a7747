"""Prepares the text of a unit for translation, and restores its inline elements, placeholders and line breaks."""

import dataclasses
import re
from collections.abc import Sequence
from typing import NamedTuple

from t2t_keras.localization.accelerators import without_accelerator
from t2t_keras.localization.arguments import ordered
from t2t_keras.localization.rewrapping import breaks, rewrapped
from t2t_keras.localization.units import Joins, Unit
from t2t_keras.text.markup.documents import MarkedDocument
from t2t_keras.text.markup.placing import AlignedText
from t2t_keras.text.markup.reading import Part, html_parts
from t2t_keras.text.markup.segments import PLACEHOLDER, segments

# Each inline element and placeholder is replaced by a stand-in with one of these characters, so that its spelling is
# not mistaken for text: "<X>" and "</X>" for tags, and "{X}" for anything without text.
_FIRST = 0x100000
_STAND_IN = re.compile(r"</?([\U00100000-\U0010fffd])>|\{([\U00100000-\U0010fffd])\}")

_HTML = re.compile(r"</?[A-Za-z][^<>]*>|<!--|&(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z]\w*);")
# HTML elements that end a sentence. Any other element may stand within one, such as those of React and DocBook.
_BLOCKS = frozenset(
    (
        *("address", "article", "aside", "blockquote", "body", "br", "center", "dd", "details", "dialog", "div", "dl"),
        *("dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "head"),
        *("header", "hr", "html", "li", "main", "menu", "nav", "ol", "p", "pre", "section", "summary", "table"),
        *("tbody", "td", "tfoot", "th", "thead", "title", "tr", "ul"),
    )
)
# Items besides the placeholders of `segments`: numbered elements of React (<0>), times of WebVTT (<00:01.500>), and
# arguments of Qt and KDE (%1, %L1, %n).
_ITEM = re.compile(
    r"(?P<tag></?\d+>)|<\d+/>|<[\d:]+\.\d+>|(?<!\d)%L?\d{1,2}(?![\d.]*[$diouxXeEfFgGcrsaAp@])|%n\b"
    rf"|{PLACEHOLDER.pattern}"
)


class _Block(NamedTuple):
    """A piece of a unit between line breaks that end a sentence.

    Attributes:
        text: the piece, with stand-ins.
        document: the piece for translation; without segments for line breaks and for text without letters.
    """

    text: str
    document: MarkedDocument

    def filled(self, result: str, line_limit: int) -> str:
        """Returns the translated piece, which is exactly the source if the model left the text unchanged."""
        unchanged = self.document.filled([_unchanged(segment.text) for segment in self.document.segments])
        return self.text if result == unchanged else rewrapped(result, self.text, line_limit)


class UnitText:
    """The text of a unit, divided into documents that a translator translates.

    Args:
        unit: the unit.
        language: language code of the translation.

    Attributes:
        documents: the documents to translate; none if the unit has no letters.
    """

    def __init__(self, unit: Unit, language: str) -> None:
        self._unit, self._language = unit, language
        self._raws: list[str] = []
        self._accelerator, parts = without_accelerator(unit.parts, unit.style.accelerators)
        is_html = any(part.kind == "text" and _HTML.search(part.raw) for part in parts)
        stood_in = [each for part in parts for each in self._stood_in(part, is_html)]
        self._blocks = [
            _Block("".join(part.raw for part in block), MarkedDocument(tuple(segments(block, is_escaped=is_html))))
            for block in _divided(stood_in, unit.style.joins)
        ]
        self._translated = [block for block in self._blocks if block.document.segments]
        self.documents = [block.document for block in self._translated]

    def filled(self, results: Sequence[str]) -> str:
        """Returns the translation as the file spells it.

        Args:
            results: the translated `documents`.
        """
        unit, remaining = self._unit, iter(results)
        texts = [
            block.filled(next(remaining), unit.style.line_limit) if block.document.segments else block.text
            for block in self._blocks
        ]
        if all(text == block.text for text, block in zip(texts, self._blocks, strict=True)):
            return spelled(unit)
        pieces = self._split("".join(texts))
        raws = ordered(self._raws, [each for each in pieces if isinstance(each, int)], unit.style.numbers_arguments)
        words = [piece if isinstance(piece, str) else "" for piece in pieces]
        if self._accelerator:
            words = self._accelerator.restored(words, self._language)
        return "".join(
            raws[piece] if isinstance(piece, int) else unit.escape(word)
            for piece, word in zip(pieces, words, strict=True)
        )

    def _stood_in(self, part: Part, is_html: bool) -> list[Part]:
        """Returns a part of the unit with stand-ins; the text of an HTML unit is divided into text and tags."""
        if part.kind != "text":
            return [self._stand_in(part, part.raw)]
        result: list[Part] = []
        for each in _html(part.raw) if is_html else [part]:
            if each.kind != "text":
                result.append(self._stand_in(each, self._unit.escape(each.raw)))
                continue
            place = 0
            for match in _ITEM.finditer(each.raw):
                item = Part("whole", match[0])
                if match["tag"]:
                    item = Part("end" if match[0].startswith("</") else "start", match[0], match[0].strip("</>"))
                result.append(Part("text", each.raw[place : match.start()]))
                result.append(self._stand_in(item, self._unit.escape(match[0])))
                place = match.end()
            result.append(Part("text", each.raw[place:]))
        return [each for each in result if each.raw]

    def _stand_in(self, part: Part, raw: str) -> Part:
        self._raws.append(raw)
        character = chr(_FIRST + len(self._raws) - 1)
        if part.kind == "whole" and part.is_inline:
            return Part("text", f"{{{character}}}")
        return dataclasses.replace(part, raw=f"</{character}>" if part.kind == "end" else f"<{character}>")

    def _split(self, text: str) -> list[str | int]:
        """Splits a text into strings and the numbers of stand-ins."""
        pieces: list[str | int] = []
        place = 0
        for match in _STAND_IN.finditer(text):
            number = ord(match[1] or match[2]) - _FIRST
            if number < len(self._raws):
                pieces += [text[place : match.start()], number]
                place = match.end()
        return [*pieces, text[place:]]


def spelled(unit: Unit) -> str:
    """Returns the source of a unit as the file spells it."""
    return "".join(unit.escape(part.raw) if part.kind == "text" else part.raw for part in unit.parts)


def _html(text: str) -> list[Part]:
    """Returns the parts of HTML in a message, in which tags without a partner may stand within a sentence."""
    parts = html_parts(text)
    names = {kind: {part.name for part in parts if part.kind == kind} for kind in ("start", "end")}
    paired = names["start"] & names["end"]
    result = []
    for part in parts:
        is_block = part.name in _BLOCKS
        is_tag = part.kind in ("start", "end") and (is_block or part.name in paired)
        kind = part.kind if is_tag or part.kind == "text" else "whole"
        result.append(dataclasses.replace(part, kind=kind, is_inline=not is_block))
    return result


def _divided(parts: Sequence[Part], joins: Joins) -> list[list[Part]]:
    """Divides parts at the line breaks that end a sentence; the breaks are pieces without letters."""
    text = "".join(part.raw for part in parts)
    cuts = [place for each in breaks(text, joins) if not each.is_within_sentence for place in (each.start, each.end)]
    blocks: list[list[Part]] = [[]]
    start = 0
    for part in parts:
        end = start + len(part.raw)
        while cuts and start <= cuts[0] <= end:
            cut = cuts.pop(0)
            if cut > start:
                blocks[-1].append(dataclasses.replace(part, raw=text[start:cut]))
            blocks.append([])
            start = cut
        if start < end:
            blocks[-1].append(dataclasses.replace(part, raw=text[start:end]))
        start = end
    return [block for block in blocks if block]


def _unchanged(text: str) -> AlignedText:
    return AlignedText(text, tuple((place, place + 1, place, place + 1) for place in range(len(text))))
