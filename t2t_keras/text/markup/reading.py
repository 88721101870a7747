"""Splits documents into text and markup; the joined parts are exactly the document."""

import collections
import dataclasses
import itertools
import re
import xml.parsers.expat
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any, Literal

from t2t_keras.errors import InputError

_INLINE_ELEMENTS = frozenset(
    (
        *("a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "del", "dfn", "em", "font", "i", "img"),
        *("input", "ins", "kbd", "label", "mark", "math", "q", "s", "samp", "small", "span", "strike", "strong"),
        *("sub", "sup", "svg", "time", "tt", "u", "var", "wbr"),
    )
)
_VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"]
)
_UNCHANGED = frozenset(
    (
        *("script", "style", "code", "pre", "kbd", "samp", "var", "textarea"),
        *("svg", "math", "iframe", "noembed", "noframes", "xmp"),
    )
)


@dataclasses.dataclass(frozen=True)
class Part:
    """A piece of a document.

    Attributes:
        kind: "text"; "start" or "end" for a tag; or "whole" for anything that stays unchanged, such as a comment.
        raw: characters of the piece.
        name: name of the element, for a tag.
        is_inline: whether the piece may stand within a sentence.
        is_kept: whether the whole element stays unchanged, for a start tag.
    """

    kind: Literal["text", "start", "end", "whole"]
    raw: str
    name: str = ""
    is_inline: bool = True
    is_kept: bool = False


class _HtmlReader(HTMLParser):
    """Records where each tag, comment or text begins.

    Attributes:
        begun: character position and part, without its `raw` text, in order.
    """

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=False)
        self.begun: list[tuple[int, Part]] = []
        self._lines = [0, *(match.end() for match in re.finditer("\n", document))]
        self.feed(document)
        self.close()

    def _add(self, part: Part) -> None:
        line, column = self.getpos()
        self.begun.append((self._lines[line - 1] + column, part))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _VOID:
            self.handle_startendtag(tag, attrs)
            return
        is_kept = tag in _UNCHANGED or ("translate", "no") in attrs
        self._add(Part("start", "", tag, tag in _INLINE_ELEMENTS, is_kept))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add(Part("whole", "", tag, tag in _INLINE_ELEMENTS))

    def handle_endtag(self, tag: str) -> None:
        self._add(Part("end", "", tag, tag in _INLINE_ELEMENTS))

    def handle_data(self, data: str) -> None:
        self._add(Part("text", ""))

    def handle_entityref(self, name: str) -> None:
        self._add(Part("text", ""))

    handle_charref = handle_entityref

    def handle_comment(self, data: str) -> None:
        self._add(Part("whole", ""))

    def handle_decl(self, decl: str) -> None:
        self._add(Part("whole", "", is_inline=False))

    handle_pi = unknown_decl = handle_comment

    def parse_marked_section(self, i: int, report: int = 1) -> int:
        """Returns the end of a section "<![...", which in HTML5 is a comment unless it is CDATA.

        The method of the base class raises an error for most other sections.
        """
        if not self.rawdata.startswith("<![CDATA[", i):
            return self.parse_bogus_comment(i)
        end = self.rawdata.find("]]>", i)
        if end < 0:
            return -1
        self.unknown_decl(self.rawdata[i + 3 : end])
        return end + 3


def html_parts(document: str) -> list[Part]:
    """Returns the parts of an HTML document or fragment."""
    return _merge_unchanged(_add_text(_HtmlReader(document).begun, document))


def xml_parts(document: str, name: str) -> list[Part]:
    """Returns the parts of an XML document, in which an element is inline if its parent contains text or is inline.

    `name` is that of the document, for messages. Raises an InputError with the line if the XML is not well-formed.
    """
    content = document.encode("utf-8")
    parser = xml.parsers.expat.ParserCreate("utf-8")
    places: list[tuple[int, Part]] = []
    in_data, in_doctype = False, False

    def add(part: Part) -> None:
        if not in_data and not in_doctype:
            places.append((parser.CurrentByteIndex, part))

    def start(tag: str, attributes: dict[str, str]) -> None:
        is_kept = "no" in (attributes.get("translate"), attributes.get("its:translate"))
        add(Part("start", "", tag, is_kept=is_kept))

    def data(begins: bool) -> None:
        nonlocal in_data
        if begins:
            add(Part("whole", ""))
        in_data = begins

    def default(text: str) -> None:
        nonlocal in_doctype
        begins = text.startswith("<!DOCTYPE")
        add(Part("whole", "", is_inline=False) if begins else Part("text", ""))
        in_doctype = in_doctype or begins

    def after_doctype() -> None:
        nonlocal in_doctype
        in_doctype = False

    handlers: dict[str, Any] = {
        "StartElementHandler": start,
        "EndElementHandler": lambda tag: add(Part("end", "", tag)),
        "CharacterDataHandler": lambda text: add(Part("text", "")),
        "CommentHandler": lambda text: add(Part("whole", "")),
        "ProcessingInstructionHandler": lambda *_: add(Part("whole", "")),
        "StartCdataSectionHandler": lambda: data(True),
        "EndCdataSectionHandler": lambda: data(False),
        "EndDoctypeDeclHandler": after_doctype,
        "DefaultHandler": default,  # prevents the expansion of entities
        "XmlDeclHandler": lambda *_: add(Part("whole", "", is_inline=False)),
    }
    for handler, function in handlers.items():
        setattr(parser, handler, function)
    try:
        parser.Parse(content, True)
    except xml.parsers.expat.ExpatError as error:
        reason = xml.parsers.expat.ErrorString(error.code)
        raise InputError(f"{name}, line {error.lineno}: not well-formed XML: {reason}") from None
    return _merge_unchanged(_mark_inline(_add_text(places, content)))


def _add_text(places: Sequence[tuple[int, Part]], document: str | bytes) -> list[Part]:
    """Returns parts with their `raw` text, from the positions (of characters or bytes) at which they begin."""
    if document and (not places or places[0][0]):  # the document begins with text that no part covers
        places = [(0, Part("whole", "", is_inline=False)), *places]
    offsets = [place for place, _ in places]
    pieces = [document[a:b] for a, b in itertools.pairwise([*offsets, len(document)])]
    raws = [piece if isinstance(piece, str) else piece.decode() for piece in pieces]
    return _join_adjacent([dataclasses.replace(part, raw=raw) for (_, part), raw in zip(places, raws, strict=True)])


def _join_adjacent(parts: Sequence[Part]) -> list[Part]:
    """Joins adjacent parts of text, and the start and end of an empty-element tag."""
    result: list[Part] = []
    for part in parts:
        last = result[-1] if result else None
        if last and part.kind == last.kind == "text":
            result[-1] = dataclasses.replace(last, raw=last.raw + part.raw)
        elif last and part.kind == "end" and not part.raw and last.kind == "start":
            result[-1] = dataclasses.replace(last, kind="whole")
        else:
            result.append(part)
    return result


def _mark_inline(parts: Sequence[Part]) -> list[Part]:
    """Makes the elements of an XML document inline whose parents contain text or are inline, and no others."""
    parents: list[int] = [-1]
    has_text: set[int] = set()
    parent_numbers = []
    for number, part in enumerate(parts):
        if part.kind == "end":
            parents.pop()
        parent_numbers.append(parents[-1])
        if part.kind == "text" and part.raw.strip():
            has_text.add(parents[-1])
        if part.kind == "start":
            parents.append(number)
    inline: list[bool] = []
    for number, parent in enumerate(parent_numbers):
        inline.append(parent >= 0 and (parent in has_text or (parts[parent].kind == "start" and inline[parent])))
        if parts[number].kind == "text":
            inline[-1] = True
    return [
        dataclasses.replace(part, is_inline=part.is_inline and is_inline)
        for part, is_inline in zip(parts, inline, strict=True)
    ]


def _merge_unchanged(parts: Sequence[Part]) -> list[Part]:
    """Merges each element that stays unchanged into one part.

    As in browsers, an element of `_UNCHANGED` without an end tag extends to the end of the document. For other elements
    without one, such as paragraphs, whose end tag is optional in HTML, only the start tag stays unchanged.
    """
    open_parts: dict[str, list[int]] = collections.defaultdict(list)
    ends: dict[int, int] = {}
    for number, part in enumerate(parts):
        if part.kind == "start":
            open_parts[part.name].append(number)
        elif part.kind == "end" and open_parts[part.name]:
            ends[open_parts[part.name].pop()] = number
    result: list[Part] = []
    number = 0
    while number < len(parts):
        part, last = parts[number], number
        if part.kind == "start" and part.is_kept:
            last = ends.get(number, len(parts) - 1 if part.name in _UNCHANGED else number)
            part = Part("whole", "".join(each.raw for each in parts[number : last + 1]), part.name, part.is_inline)
        result.append(part)
        number = last + 1
    return result
