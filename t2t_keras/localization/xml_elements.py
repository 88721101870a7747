"""Finds the elements of an XML file and their positions in its text."""

import dataclasses
import html
import re
import xml.parsers.expat
from collections.abc import Iterator

from t2t_keras.errors import InputError
from t2t_keras.localization.units import Edit, error_at
from t2t_keras.text.markup.reading import Part

_START_TAG = re.compile(r"<[^\s/>\"']+(?:[^>\"']|\"[^\"]*\"|'[^']*')*>")
_ENTITY = re.compile(r"&(?:#\d+|#x[0-9a-fA-F]+|\w+);")
# Pieces of content that are not text. A CDATA section is text without entities.
_OTHER = re.compile(r"<!\[CDATA\[(?P<data>.*?)\]\]>|<!--.*?-->|<\?.*?\?>", re.DOTALL)
_DEEPEST = 100
_KNOWN_ENTITIES = {"&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&apos;": "'"}


@dataclasses.dataclass
class Element:
    """An element of an XML file.

    Attributes:
        tag: name as written, such as "xlf:source".
        attributes: the attributes.
        start: position of the start tag.
        inner: position after the start tag.
        inner_end: position of the end tag; equal to `inner` if the element is empty.
        end: position after the element.
        children: the child elements.
    """

    tag: str
    attributes: dict[str, str]
    start: int
    inner: int
    inner_end: int = -1
    end: int = -1
    children: list["Element"] = dataclasses.field(default_factory=list)

    @property
    def name(self) -> str:
        """The name without a prefix."""
        return self.tag.rpartition(":")[2]

    def child(self, name: str) -> "Element | None":
        """Returns the first child with a name, or None."""
        return next((child for child in self.children if child.name == name), None)

    def all(self, name: str) -> "Iterator[Element]":
        """Yields the descendants with a name, in order."""
        for child in self.children:
            if child.name == name:
                yield child
            yield from child.all(name)


def root_element(text: str, name: str) -> Element:
    """Returns the root of an XML file, which must be an element called `name`.

    Raises:
        InputError: the file is not well-formed or has a different root; names the line.
    """
    content = text.encode("utf-8")
    parser = xml.parsers.expat.ParserCreate("utf-8")
    top = Element("", {}, 0, 0)
    open_elements = [top]
    last_byte = last_place = 0

    def place() -> int:
        nonlocal last_byte, last_place
        last_place += len(content[last_byte : parser.CurrentByteIndex].decode())
        last_byte = parser.CurrentByteIndex
        return last_place

    def start(tag: str, attributes: dict[str, str]) -> None:
        begin = place()
        if len(open_elements) > _DEEPEST:
            raise error_at(text, begin, f"elements are nested more than {_DEEPEST} deep")
        match = _START_TAG.match(text, begin)
        element = Element(tag, attributes, begin, match.end() if match else begin)
        open_elements[-1].children.append(element)
        open_elements.append(element)

    def end(tag: str) -> None:
        element = open_elements.pop()
        is_empty = text.startswith("/>", element.inner - 2)
        element.inner_end = element.inner if is_empty else place()
        element.end = element.inner if is_empty else text.index(">", element.inner_end) + 1

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.DefaultHandler = lambda data: None  # prevents the expansion of entities
    try:
        parser.Parse(content, True)
    except xml.parsers.expat.ExpatError as error:
        reason = xml.parsers.expat.ErrorString(error.code)
        raise InputError(f"line {error.lineno}: not well-formed XML: {reason}") from None
    root = top.children[0]
    if root.name != name:
        raise error_at(text, root.start, f"the root element must be <{name}>, not <{root.tag}>")
    return root


def content_parts(text: str, element: Element, codes: frozenset[str]) -> tuple[Part, ...]:
    """Returns the content of an element: text without entities, and inline elements as written.

    Args:
        text: the file.
        element: the element.
        codes: names of inline elements whose content is not text.
    """
    parts: list[Part] = []
    place = element.inner
    for child in element.children:
        parts += _text_parts(text[place : child.start])
        is_unchanged = "no" in (child.attributes.get("translate"), child.attributes.get("its:translate"))
        if is_unchanged or child.name in codes or child.inner == child.inner_end:
            parts.append(Part("whole", text[child.start : child.end]))
        else:
            parts.append(Part("start", text[child.start : child.inner], child.tag))
            parts += content_parts(text, child, codes)
            parts.append(Part("end", text[child.inner_end : child.end], child.tag))
        place = child.end
    return (*parts, *_text_parts(text[place : element.inner_end]))


def _text_parts(raw: str) -> list[Part]:
    """Returns the parts of content without elements; comments and entities of the file stay as they are."""
    parts, place = [], 0
    for match in _OTHER.finditer(raw):
        parts += _without_entities(raw[place : match.start()])
        parts.append(Part("text", match["data"]) if match["data"] is not None else Part("whole", match[0]))
        place = match.end()
    return [*parts, *_without_entities(raw[place:])]


def _without_entities(raw: str) -> list[Part]:
    parts, text, place = [], "", 0
    for match in _ENTITY.finditer(raw):
        text += raw[place : match.start()]
        place = match.end()
        if match[0].startswith("&#"):
            text += html.unescape(match[0])
        elif match[0] in _KNOWN_ENTITIES:
            text += _KNOWN_ENTITIES[match[0]]
        else:
            parts += [Part("text", text), Part("whole", match[0])]
            text = ""
    parts.append(Part("text", text + raw[place:]))
    return [part for part in parts if part.raw]


class Escape:
    """Escapes text as an element of the file does; quotes and other characters become entities if they are there.

    Args:
        raw: content of the element.
    """

    def __init__(self, raw: str) -> None:
        written = {
            _KNOWN_ENTITIES.get(entity) or html.unescape(entity): entity
            for entity in _ENTITY.findall(_OTHER.sub("", raw))
            if entity in _KNOWN_ENTITIES or entity.startswith("&#")
        }
        self._spellings = {"&": "&amp;", "<": "&lt;", ">": "&gt;", **written}

    def __call__(self, text: str) -> str:
        return "".join(self._spellings.get(character, character) for character in text)


def with_attribute(text: str, element: Element, name: str, value: str) -> str:
    """Returns the start tag of an element with an attribute set; the tag of an empty element no longer ends it."""
    tag = re.sub(r"\s*/>$", ">", text[element.start : element.inner])
    attribute = re.search(rf"(?<=\s){re.escape(name)}\s*=\s*(?:\"[^\"]*\"|'[^']*')", tag)
    spelling = f'{name}="{value}"'
    return tag[: attribute.start()] + spelling + tag[attribute.end() :] if attribute else f"{tag[:-1]} {spelling}>"


def attribute_edit(text: str, element: Element, name: str, value: str) -> Edit:
    """Returns the edit that sets an attribute of an element that is not empty."""
    return Edit(element.start, element.inner, with_attribute(text, element, name, value))


def content_edit(text: str, element: Element, content: str, name: str, value: str) -> Edit:
    """Returns the edit that sets the content and an attribute of an element."""
    start_tag = with_attribute(text, element, name, value)
    return Edit(element.start, element.end, f"{start_tag}{content}</{element.tag}>")


def indentation(text: str, place: int) -> str:
    """Returns the line break and the blanks before an element, or "" if it does not begin a line."""
    line_start = text.rfind("\n", 0, place) + 1
    before = text[line_start:place]
    return f"\n{before}" if line_start and not before.strip() else ""


def prefix(element: Element) -> str:
    """Returns the prefix of an element's name with its colon, or ""."""
    return element.tag.removesuffix(element.name)
