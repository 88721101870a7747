"""Finds the extent of elements, and whether they are translated."""

import dataclasses
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from t2t_keras.text.markup.reading import Part

# Elements of HTML that can stand within a sentence.
INLINE = frozenset(
    (
        *("a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i"),
        *("img", "input", "ins", "kbd", "label", "mark", "math", "nobr", "output", "q", "rb", "rp", "rt", "ruby"),
        *("s", "samp", "small", "span", "strike", "strong", "sub", "sup", "svg", "time", "tt", "u", "var", "wbr"),
    )
)
VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"]
)
# Elements whose content is never translated.
UNTRANSLATABLE = frozenset(["script", "style", "svg", "math", "iframe", "noembed", "noframes", "xmp"])
# Elements whose content is translated only with translate="yes".
UNCHANGED = UNTRANSLATABLE | {"code", "pre", "kbd", "samp", "var", "textarea", "rp", "rt"}

# Elements that a start tag ends, if their end tags are missing.
_AFTER_PARAGRAPH = frozenset(
    (
        *("address", "article", "aside", "blockquote", "center", "details", "dialog", "dir", "div", "dl", "fieldset"),
        *("figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hgroup", "hr"),
        *("main", "menu", "nav", "ol", "p", "pre", "search", "section", "summary", "table", "ul", "xmp"),
        *("li", "dt", "dd"),
    )
)
_ROWS = frozenset(["tr", "tbody", "thead", "tfoot"])
_CELLS = frozenset(["td", "th", *_ROWS])
_RUBY = frozenset(["rb", "rt", "rtc", "rp"])
_ENDED_BY = {
    "p": _AFTER_PARAGRAPH,
    "li": frozenset(["li"]),
    **dict.fromkeys(("dt", "dd"), frozenset(["dt", "dd"])),
    "option": frozenset(["option", "optgroup", "hr"]),
    "optgroup": frozenset(["optgroup", "hr"]),
    **dict.fromkeys(("td", "th"), _CELLS),
    **dict.fromkeys(("caption", "colgroup"), _CELLS),
    "tr": _ROWS,
    **dict.fromkeys(("tbody", "thead", "tfoot"), _ROWS - {"tr"}),
    **dict.fromkeys(("rb", "rt", "rp"), _RUBY),
}
# Elements that neither a start tag nor an end tag within them ends.
_TABLE = frozenset(["table", "caption", *_CELLS])
_BARRIERS = frozenset(["table", "td", "th", "caption", "select", "button", "object", "template"])
_LISTS = frozenset(["ul", "ol", "menu", "dl"])
# These elements continue after the end of their parents, until their own end tags.
_FORMATTING = frozenset(
    ["a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u"]
)
_MAX_CONTINUED = 3
_DEEPEST = 512  # nesting in browsers


@dataclasses.dataclass(frozen=True)
class _Element:
    number: int
    part: "Part"
    name: str
    translates: bool
    translates_attributes: bool


class Scopes:
    """Computes which parts of a document are translated.

    Add all parts in order, then call `finish`.

    Args:
        is_html: whether end tags may be missing.

    Attributes:
        translates: whether each part is translated; for a tag, whether the content of its element is.
        translates_attributes: whether the attributes of each tag may be translated.
        ends: number of the last part of an element by that of its start tag, for elements that end within their
            parents.
        mixed: numbers of the start tags of unchanged elements that contain translated elements.
    """

    def __init__(self, is_html: bool) -> None:
        self.translates: list[bool] = []
        self.translates_attributes: list[bool] = []
        self.ends: dict[int, int] = {}
        self.mixed: set[int] = set()
        self._is_html = is_html
        self._open = [_Element(-1, cast(Any, None), "", True, True)]
        self._continued: set[int] = set()

    def add(self, part: "Part") -> None:
        """Adds the next part."""
        number = len(self.translates)
        if part.kind == "end":
            self._end(part.name, number)
        elif self._is_html and part.name:
            self._end_implied(part.name, number)
        element = self._element(number, part)
        self.translates.append(element.translates)
        self.translates_attributes.append(element.translates_attributes)
        if part.kind == "start":
            self._push(element)

    def finish(self) -> None:
        """Ends the elements without end tags."""
        for element in self._open[1:]:
            if element.number not in self._continued:
                self.ends[element.number] = len(self.translates) - 1

    def _element(self, number: int, part: "Part") -> _Element:
        parent = self._open[-1]
        if part.kind in ("text", "end"):
            return _Element(number, part, part.name, parent.translates, parent.translates_attributes)
        inherits = part.translate is None
        attributes = parent.translates_attributes if inherits else bool(part.translate)
        content = parent.translates and not part.is_unchanged if inherits else bool(part.translate)
        return _Element(number, part, part.name, content, attributes)

    def _push(self, element: _Element) -> None:
        if element.translates and not self._open[-1].translates:
            for outer in reversed(self._open):
                if outer.translates or outer.number in self.mixed:
                    break
                self.mixed.add(outer.number)
        self._open.append(element)

    def _end(self, name: str, number: int) -> None:
        for depth in self._depths():
            other = self._open[depth].name
            if other == name:
                self._pop(depth + 1, number - 1)
                # The elements that continue now follow the one that ends.
                element = self._open.pop(depth)
                if element.number not in self._continued:
                    self.ends[element.number] = number
                return
            if self._is_html and (other == "table" if name in _TABLE else other in _BARRIERS):
                return

    def _end_implied(self, name: str, number: int) -> None:
        """Ends elements without end tags, before a start tag with this name."""
        first = None
        for depth in self._depths():
            other = self._open[depth].name
            if name in _ENDED_BY.get(other, ()):
                first = depth
            elif other in _BARRIERS or (other in _LISTS and name in ("li", "dt", "dd")):
                break
        if first is not None:
            self._pop(first, number - 1)

    def _depths(self) -> range:
        """Returns the places of the innermost open elements, at most as many as browsers nest."""
        return range(len(self._open) - 1, max(0, len(self._open) - 1 - _DEEPEST), -1)

    def _pop(self, depth: int, last: int) -> None:
        """Ends the elements from a depth on; unchanged formatting elements continue."""
        popped = self._open[depth:]
        del self._open[depth:]
        continued = [element for element in popped if self._is_html and _continues(element.part)]
        self._continued.update(element.number for element in continued)
        for element in popped:
            if element.number not in self._continued:
                self.ends[element.number] = last
        for element in continued[-_MAX_CONTINUED:]:
            self._push(self._element(element.number, element.part))


def _continues(part: "Part") -> bool:
    return part.name in _FORMATTING and (part.is_unchanged or part.translate is not None)
