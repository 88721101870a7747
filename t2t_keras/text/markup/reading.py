"""Splits documents into text and markup; the joined parts are exactly the document."""

import dataclasses
import itertools
import re
import xml.parsers.expat
from collections.abc import Callable, Mapping, Sequence
from html.parser import HTMLParser
from typing import Any, Literal

from t2t_keras.errors import InputError
from t2t_keras.text.markup.elements import INLINE, UNCHANGED, UNTRANSLATABLE, VOID, Scopes


@dataclasses.dataclass(frozen=True)
class Part:
    """A piece of a document.

    Attributes:
        kind: "text"; "start" or "end" for a tag; or "whole" for anything that stays unchanged, such as a comment.
        raw: characters of the piece.
        name: name of the element, for a tag.
        is_inline: whether the piece may stand within a sentence.
        is_unchanged: whether the content of the element stays unchanged unless `translate` is true, for a start tag.
        translate: whether the tag's attributes ask for translation of the element; None if they do not say.
        joins: whether the piece may stand within a word, as a comment may; for "whole".
        line: line of the document in which the piece begins, from 1.
    """

    kind: Literal["text", "start", "end", "whole"]
    raw: str
    name: str = ""
    is_inline: bool = True
    is_unchanged: bool = False
    translate: bool | None = None
    joins: bool = False
    line: int = 1


# A function of a tag whose attributes may be translated, which returns the tag with its raw text edited.
EditTag = Callable[[Part], Part]


class _HtmlReader(HTMLParser):
    """Records where each tag, comment or text begins.

    Attributes:
        starts: character position of each part, and the part without its `raw` text, in order.
    """

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=False)
        self.starts: list[tuple[int, Part]] = []
        self._lines = [0, *(match.end() for match in re.finditer("\n", document))]
        # No tag is complete after the last ">". The parser would look for the end of each, in quadratic time. Entities
        # belong to the text around them, and the parser would take all markup after one like "&#a" for text.
        end = document.rfind(">") + 1
        self.feed(document[:end].replace("&", "_"))
        self.close()
        if end < len(document):
            self.starts.append((end, Part("text", "")))

    def _add(self, part: Part) -> None:
        line, column = self.getpos()
        self.starts.append((self._lines[line - 1] + column, part))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in VOID:
            self.handle_startendtag(tag, attrs)
            return
        # If an attribute is repeated, the first one counts.
        translate = _translate({name: value or "" for name, value in reversed(attrs)})
        if tag in UNTRANSLATABLE and translate:
            translate = None
        self._add(Part("start", "", tag, tag in INLINE, tag in UNCHANGED, translate))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        translate = _translate({name: value or "" for name, value in reversed(attrs)})
        self._add(Part("whole", "", tag, tag in INLINE, translate=translate, joins=tag == "wbr"))

    def handle_endtag(self, tag: str) -> None:
        self._add(Part("end", "", tag, tag in INLINE))

    def handle_data(self, data: str) -> None:
        self._add(Part("text", ""))

    def handle_comment(self, data: str) -> None:
        self._add(Part("whole", "", joins=True))

    def handle_decl(self, decl: str) -> None:
        self._add(Part("whole", "", is_inline=False))

    handle_pi = unknown_decl = handle_comment

    def parse_pi(self, i: int) -> int:
        """Returns the end of an instruction "<?...", which in HTML ends with ">", and in PHP with "?>"."""
        end = self.rawdata.find("?>", i) if self.rawdata.startswith(("<?php", "<?="), i) else -1
        if end < 0:
            return super().parse_pi(i)
        self.handle_pi(self.rawdata[i + 2 : end])
        return end + 2

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


def html_parts(document: str, edit_tag: EditTag | None = None) -> list[Part]:
    """Returns the parts of an HTML document or fragment.

    Args:
        document: the document.
        edit_tag: edits the tags whose attributes may be translated; None means no change.
    """
    return _merge_unchanged(_add_text(_HtmlReader(document).starts, document), True, edit_tag)


def xml_parts(document: str, name: str, edit_tag: EditTag | None = None) -> list[Part]:
    """Returns the parts of an XML document, in which an element is inline if its parent contains text or is inline.

    Args:
        document: the document.
        name: name of the document, for messages.
        edit_tag: as for `html_parts`.

    Raises:
        InputError: the XML is not well-formed; names the line.
    """
    content = document.encode("utf-8")
    parser = xml.parsers.expat.ParserCreate("utf-8")
    places: list[tuple[int, Part]] = []
    in_data, in_doctype = False, False

    def add(part: Part) -> None:
        if not in_data and not in_doctype:
            places.append((parser.CurrentByteIndex, part))

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
        "StartElementHandler": lambda tag, attributes: add(Part("start", "", tag, translate=_translate(attributes))),
        "EndElementHandler": lambda tag: add(Part("end", "", tag)),
        "CharacterDataHandler": lambda text: add(Part("text", "")),
        "CommentHandler": lambda text: add(Part("whole", "", joins=True)),
        "ProcessingInstructionHandler": lambda *_: add(Part("whole", "", joins=True)),
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
    return _merge_unchanged(_mark_inline(_add_text(places, content)), False, edit_tag)


def _translate(attributes: Mapping[str, str]) -> bool | None:
    """Returns whether attributes ask for translation, as HTML defines it; None if they do not say.

    HTML compares the values of `translate` case-insensitively, the empty value means "yes", and other values have no
    effect. `notranslate` is a class that translation services respect.
    """
    if "notranslate" in attributes.get("class", "").split():
        return False
    values = [attributes[name].lower() for name in ("translate", "its:translate") if name in attributes]
    if "no" in values:
        return False
    return True if {"yes", ""} & set(values) else None


def _add_text(places: Sequence[tuple[int, Part]], document: str | bytes) -> list[Part]:
    """Returns parts with their `raw` text, from the positions (of characters or bytes) at which they begin."""
    if document and (not places or places[0][0]):  # the document begins with text that no part covers
        places = [(0, Part("whole", "", is_inline=False)), *places]
    offsets = [place for place, _ in places]
    pieces = [document[a:b] for a, b in itertools.pairwise([*offsets, len(document)])]
    raws = [piece if isinstance(piece, str) else piece.decode() for piece in pieces]
    lines = itertools.accumulate((raw.count("\n") for raw in raws), initial=1)
    parts = (part for _, part in places)
    return _join_adjacent(
        [dataclasses.replace(part, raw=raw, line=line) for part, raw, line in zip(parts, raws, lines, strict=False)]
    )


def _join_adjacent(parts: Sequence[Part]) -> list[Part]:
    """Joins adjacent parts of text, and the start and end of an empty-element tag."""
    result: list[Part] = []
    texts: list[str] = []
    for part in [*parts, None]:
        if part and part.kind == "text":
            if not texts:
                result.append(part)
            texts.append(part.raw)
            continue
        if texts:
            result[-1] = dataclasses.replace(result[-1], raw="".join(texts))
            texts.clear()
        last = result[-1] if result else None
        if part and last and part.kind == "end" and not part.raw and last.kind == "start":
            result[-1] = dataclasses.replace(last, kind="whole")
        elif part:
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


def _merge_unchanged(parts: Sequence[Part], is_html: bool, edit_tag: EditTag | None) -> list[Part]:
    """Makes everything that stays unchanged "whole", and merges each unchanged element into one part."""
    scopes = Scopes(is_html)
    for part in parts:
        scopes.add(part)
    scopes.finish()
    if edit_tag is not None:
        parts = [
            edit_tag(part) if part.name and part.kind != "end" and has_attributes else part
            for part, has_attributes in zip(parts, scopes.translates_attributes, strict=True)
        ]
    result: list[Part] = []
    number = 0
    while number < len(parts):
        part, last = parts[number], number
        if not scopes.translates[number]:
            if part.kind == "start" and number in scopes.ends and number not in scopes.mixed:
                last = scopes.ends[number]
                raw = "".join(each.raw for each in parts[number : last + 1])
                joins = part.name in ("rp", "rt")  # pronunciations between the characters of a word
                part = Part("whole", raw, part.name, part.is_inline, joins=joins, line=part.line)
            elif part.kind == "text":
                part = dataclasses.replace(part, kind="whole")
        result.append(part)
        number = last + 1
    return result
