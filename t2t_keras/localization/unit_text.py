"""Prepares the text of a unit for translation, and restores its inline elements, placeholders and line breaks."""

import dataclasses
import html
import re
from collections.abc import Sequence
from typing import NamedTuple

from t2t_keras.localization.accelerators import without_accelerator
from t2t_keras.localization.message_arguments import ARGUMENT, ordered
from t2t_keras.localization.rewrapping import breaks, join_lines, rewrapped
from t2t_keras.localization.units import Unit
from t2t_keras.text.markup.documents import MarkedDocument, Markup
from t2t_keras.text.markup.placing import AlignedText
from t2t_keras.text.markup.reading import Part, html_parts

# Each inline element and some placeholders are replaced by stand-ins with one of these characters, which the reader of
# documents understands: an HTML tag with the character in place of attributes, or "{X}" for anything without text.
_FIRST = 0x100000
_STAND_IN = re.compile(r"</?\w+ ([\U00100000-\U0010fffd])>|\{([\U00100000-\U0010fffd])\}")
_INLINE = "b"  # the name of tags that may stand within a sentence
_SEPARATOR = "br"

_HTML = re.compile(r"</?[A-Za-z][^<>]*>|<!--|&(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z]\w*);")
# HTML elements that end a sentence. Any other element may stand within one, such as those of React and DocBook.
BLOCKS = frozenset(
    (
        *("address", "article", "aside", "blockquote", "body", "br", "center", "dd", "details", "dialog", "div", "dl"),
        *("dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "head"),
        *("header", "hr", "html", "li", "main", "menu", "nav", "ol", "p", "pre", "section", "summary", "table"),
        *("tbody", "td", "tfoot", "th", "thead", "title", "tr", "ul"),
    )
)
# Items besides those that the reader of documents knows: URLs, numbered elements of React (<0>), times of WebVTT
# (<00:01.500>), arguments of Qt and KDE (%1, %L1, %n), and arguments whose order counts (%s, {}).
_NUMBERED_TAG = re.compile(r"</?\d+>")
_URL = r"https?://(?:(?!&(?:[lg]t|quot|nbsp);)[^\s<>\"'])*[\w/}]"
_ITEM = re.compile(
    rf"(?P<tag>{_NUMBERED_TAG.pattern})|{_URL}"
    r"|<\d+/>|<[\d:]+\.\d+>|(?<!\d)%L?\d{1,2}(?![\d.]*[$diouxXeEfFgGcrsaAp@])|%n\b"
    rf"|{ARGUMENT.pattern}"
)
# The dash of a speaker, the bullet or number of a list item, and the sign of a song at the beginning of a line.
_MARKER = re.compile(r"(?:[-–—*•♪>]|\d{1,3}[.)])[ \t]+|[-–—](?=[^\W\d_])")


class _Block(NamedTuple):
    """A piece of a unit between line breaks and tags that end a sentence.

    Attributes:
        text: the piece, with stand-ins.
        document: the piece for translation; without segments for text without letters.
    """

    text: str
    document: MarkedDocument

    def filled(self, result: str, line_limit: int) -> str:
        """Returns the translated piece, which is exactly the source if the model left the text unchanged."""
        unchanged = self.document.filled([AlignedText.unchanged(segment.text) for segment in self.document.segments])
        return self.text if result == unchanged else rewrapped(result, self.text, line_limit)


class UnitText:
    """The text of a unit, divided into documents that a translator translates.

    Args:
        unit: the unit.
        language: language code of the translation.

    Attributes:
        documents: the documents to translate; empty if the unit has no letters.
    """

    def __init__(self, unit: Unit, language: str) -> None:
        self._unit, self._language = unit, language
        self._raws: list[str] = []
        self._accelerator, parts = without_accelerator(unit.parts, unit.style.accelerators)
        texts = [part.raw for part in parts if part.kind == "text"]
        is_html = any(map(_HTML.search, texts))
        has_tags = any(part.kind != "text" and (part.kind != "whole" or not part.is_inline) for part in parts)
        has_tags = has_tags or any(map(_NUMBERED_TAG.search, texts))
        # The text of a unit with tags is read as HTML, and is escaped for that purpose if it is not HTML.
        self._is_escaped = has_tags and not is_html
        prepared = "".join(self._with_stand_ins(part, is_html) for part in parts)
        markup: Markup = "html" if has_tags or is_html else "placeholders"
        self._blocks = [
            _Block(block, MarkedDocument.parsed(join_lines(block), markup, "unit"))
            for block in _divided(prepared, unit)
        ]
        self.documents = [block.document for block in self._blocks if block.document.segments]

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
        words = ["" if isinstance(piece, int) else self._unescaped(piece) for piece in pieces]
        if self._accelerator:
            words = self._accelerator.restored(words, self._language)
        return "".join(
            raws[piece] if isinstance(piece, int) else unit.escape(word)
            for piece, word in zip(pieces, words, strict=True)
        )

    def _unescaped(self, text: str) -> str:
        if not self._is_escaped:
            return text
        return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")

    def _with_stand_ins(self, part: Part, is_html: bool) -> str:
        """Returns a part of the unit with stand-ins."""
        if part.kind != "text":
            return self._stand_in(dataclasses.replace(part, name=_INLINE), part.raw)
        result = ""
        for each in _html(part.raw) if is_html else [part]:
            if each.kind != "text":
                result += self._stand_in(each, self._unit.escape(each.raw))
                continue
            place, depths = 0, _depths(each.raw) if "{" in each.raw else [0] * len(each.raw)
            for match in _ITEM.finditer(each.raw):
                if depths[match.start()]:
                    continue
                item = Part("whole", match[0])
                if match["tag"]:
                    item = Part("end" if match[0].startswith("</") else "start", match[0], _INLINE)
                result += self._text(each.raw[place : match.start()])
                result += self._stand_in(item, self._unit.escape(match[0]))
                place = match.end()
            result += self._text(each.raw[place:])
        return result

    def _text(self, text: str) -> str:
        return html.escape(text, quote=False) if self._is_escaped else text

    def _stand_in(self, part: Part, raw: str) -> str:
        self._raws.append(raw)
        character = chr(_FIRST + len(self._raws) - 1)
        if part.kind == "whole":
            return f"{{{character}}}" if part.is_inline else f"<{_SEPARATOR} {character}>"
        return f"</{part.name} {character}>" if part.kind == "end" else f"<{part.name} {character}>"

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
    """Returns the parts of HTML in a message.

    Unknown tags and tags without a partner may stand within a sentence. Tags that end a sentence keep their names.
    """
    parts = html_parts(text)
    names = {kind: {part.name for part in parts if part.kind == kind} for kind in ("start", "end")}
    paired = names["start"] & names["end"]
    result = []
    for part in parts:
        is_block = part.name in BLOCKS
        if part.kind in ("start", "end") and not is_block and part.name not in paired:
            part = dataclasses.replace(part, kind="whole")
        name = part.name if is_block or part.is_inline else _INLINE
        result.append(dataclasses.replace(part, name=name, is_inline=not is_block))
    return result


def _divided(text: str, unit: Unit) -> list[str]:
    """Divides a text with stand-ins at line breaks and tags that end a sentence; these are separate pieces.

    The marker at the beginning of a line, such as the dash of a speaker, is separate too.
    """
    cuts = {place for each in breaks(text, unit.style.joins) if not each.is_within_sentence for place in each[:2]}
    for match in _STAND_IN.finditer(text):
        if match[0].startswith(f"<{_SEPARATOR} "):
            cuts |= {*match.span()}
    is_speech = unit.style.joins == "all"
    for start in sorted({0, *cuts}):
        marker = _MARKER.match(text, start)
        if marker and (is_speech or marker[0][-1].isspace()):
            cuts.add(marker.end())
    places = sorted({0, *cuts, len(text)})
    return [text[start:end] for start, end in zip(places, places[1:], strict=False)]


def _depths(text: str) -> list[int]:
    """Returns for each position of a text how many braces are open before it."""
    depths, depth = [], 0
    for character in text:
        depths.append(depth)
        depth = max(depth + {"{": 1, "}": -1}.get(character, 0), 0)
    return depths
