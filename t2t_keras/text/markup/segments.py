"""Extracts the segments of a document: the text that a model reads, and the tags and placeholders that it does not."""

import bisect
import collections
import dataclasses
import html
import re
import unicodedata
from collections.abc import Sequence

from t2t_keras.text.markup.reading import Part
from t2t_keras.text.words import is_of_word, units

_BRACES = r"\{(?:[^{}]|\{[^{}]*\})*\}"
_CONVERSION = r"(?:[#0+]|-(?=[\d*.]))*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|z|j|t|L)?[diouxXeEfFgGcrsaAp@]"
# After a digit, "%" is a percent sign, as in the German "10%ige". So it is before a hyphen without a width, as in the
# Swedish "3 %-enheter".
PLACEHOLDER = re.compile(rf"[$%]?{_BRACES}|%\(\w+\){_CONVERSION}|(?<!\d)%(?:\d+\$)?{_CONVERSION}|%%")
_ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);")
_ITEM = re.compile(f"(?P<entity>{_ENTITY.pattern})|(?P<placeholder>{PLACEHOLDER.pattern})")
_BLANKS = " \t\n\r\f"
# The deepest nesting of elements in a segment. Deeper tags end a segment, as tags without a partner do.
_DEEPEST = 100


@dataclasses.dataclass
class Mark:
    """An element, a single tag, or a placeholder in a segment.

    Attributes:
        opening: the start tag of an element, or a whole single tag or placeholder.
        closing: the end tag; "" if there is none.
        start: index of the first source unit within the mark, or after it if the mark has no text.
        end: index after the last source unit within the mark.
        children: marks within the mark.
        blank_before: whether a blank precedes the mark; None at the beginning of the segment.
        blank_after: whether a blank follows a mark without text; None at the end of the segment.
    """

    opening: str
    closing: str = ""
    start: int = 0
    end: int = 0
    children: list["Mark"] = dataclasses.field(default_factory=list)
    blank_before: bool | None = None
    blank_after: bool | None = None

    @property
    def raw(self) -> str:
        """The markup of the mark and its children, without text."""
        return self.opening + "".join(child.raw for child in self.children) + self.closing


@dataclasses.dataclass
class Segment:
    """One or more sentences that are translated together.

    Attributes:
        text: the text to translate, without marks.
        marks: the marks that were removed from the text.
        before: blanks before the segment.
        after: blanks after the segment.
        entities: spelling of characters that the document writes as entities.
        line: line of the document in which the segment begins, from 1.
        is_escaped: whether the document uses entities.
    """

    text: str
    marks: list[Mark]
    before: str = ""
    after: str = ""
    entities: dict[str, str] = dataclasses.field(default_factory=dict)
    line: int = 1
    is_escaped: bool = True


def segments(parts: Sequence[Part], *, is_escaped: bool = True) -> list[str | Segment]:
    """Divides a document into segments to translate and strings that stay unchanged, in order.

    Args:
        parts: parts of the document.
        is_escaped: whether the text uses entities.
    """
    pieces: list[str | Segment] = []
    run: list[Part] = []
    line = 1

    def finish() -> None:
        nonlocal line
        for piece in _split_run(run):
            raw = "".join(part.raw for part in piece)
            segment = _segment(piece, line, is_escaped)
            pieces.append(segment if any(map(str.isalpha, segment.text)) else raw)
            line += raw.count("\n")
        run.clear()

    for part in parts:
        if part.is_inline:
            run.append(part)
            continue
        finish()
        pieces.append(part.raw)
        line += part.raw.count("\n")
    finish()
    return pieces


def _split_run(run: Sequence[Part]) -> list[list[Part]]:
    """Splits a run of inline parts at tags without a partner in the run, and around parts outside of the text."""
    partners: dict[int, int] = {}
    open_parts: list[int] = []
    names: collections.Counter[str] = collections.Counter()  # of the open elements
    for number, part in enumerate(run):
        if part.kind == "start":
            open_parts.append(number)
            names[part.name] += 1
        elif part.kind == "end" and names[part.name]:
            while run[first := open_parts.pop()].name != part.name:
                names[run[first].name] -= 1
            names[part.name] -= 1
            if len(open_parts) < _DEEPEST:
                partners[first] = number
    separators = {n for n, part in enumerate(run) if part.kind in ("start", "end")} - {*partners, *partners.values()}
    # An element must not extend over a cut, so its tags become cuts too.
    while crossings := {pair for pair in partners.items() if any(pair[0] < place < pair[1] for place in separators)}:
        for first, last in crossings:
            del partners[first]
            separators |= {first, last}
    pieces: list[list[Part]] = [[]]
    for number, part in enumerate(run):
        if number in separators:
            pieces += [[part], []]
        else:
            pieces[-1].append(part)
    return [trimmed for piece in pieces if piece for trimmed in _trim(piece)]


def _trim(piece: Sequence[Part]) -> list[list[Part]]:
    """Separates the parts before the first text or element and after the last one; leaves out empty lists."""
    inner = [n for n, part in enumerate(piece) if part.kind != "whole" and (part.kind != "text" or part.raw.strip())]
    if not inner:
        return [list(piece)]
    cuts = [piece[: inner[0]], piece[inner[0] : inner[-1] + 1], piece[inner[-1] + 1 :]]
    return [list(cut) for cut in cuts if cut]


class _Builder:
    """Collects the text and the marks of a segment."""

    def __init__(self, is_escaped: bool) -> None:
        self.text, self.before = "", ""
        self.entities: dict[str, str] = {}
        self._is_escaped = is_escaped
        self._blanks, self._follows_point = "", False
        self._is_apart = False  # whether the model should see the next character as the start of a new word
        self.top = Mark("")
        self._open = [self.top]
        self._points: list[Mark] = []  # marks without text that nothing follows yet

    def add_text(self, raw: str) -> None:
        place = 0
        for match in _ITEM.finditer(raw):
            if match["entity"] and not self._is_escaped:
                continue
            for character in raw[place : match.start()]:
                self._add(character)
            place = match.end()
            character = html.unescape(match[0]) if match["entity"] else ""
            if len(character) == 1 and (unicodedata.category(character)[0] in "LNP" or character in "<>&"):
                self.entities[character] = match[0]
                self._add(character)
            else:
                self.add_point(match[0], joins=bool(character) and unicodedata.category(character[0]) == "Cf")
        for character in raw[place:]:
            self._add(character)

    def _add(self, character: str) -> None:
        if character in _BLANKS:
            self._blanks += character
            self._follow(True)
            return
        self._follow(False)
        if not self.text and not self._follows_point:
            self.before = self._blanks
        closes = (
            self._follows_point and not is_of_word(character) and unicodedata.category(character) not in ("Ps", "Pi")
        )
        if (self._blanks or self._is_apart) and self.text and not closes and not self.text.endswith(" "):
            self.text += " "
        self.text += character
        self._blanks, self._follows_point, self._is_apart = "", False, False

    def _follow(self, is_blank: bool) -> None:
        for point in self._points:
            point.blank_after = is_blank
        self._points.clear()

    def add_point(self, raw: str, joins: bool = False) -> None:
        is_first = not self.text and not self._follows_point
        if is_first:
            self.before, self._blanks = self._blanks, ""
        point = Mark(raw, start=len(self.text), end=len(self.text))
        point.blank_before = None if is_first else bool(self._blanks)
        self._follow(bool(self._blanks))
        self._open[-1].children.append(point)
        self._points.append(point)
        self._follows_point = True
        # If a placeholder separates two words, the model should not see them as one.
        self._is_apart = self._is_apart or bool(self._blanks) or not (joins or is_first)
        self._blanks = ""

    def open(self, raw: str) -> None:
        mark = Mark(raw, start=len(self.text))
        mark.blank_before = bool(self._blanks) if self.text else None
        self._open[-1].children.append(mark)
        self._open.append(mark)

    def close(self, raw: str) -> None:
        mark = self._open.pop()
        mark.closing, mark.end = raw, len(self.text)
        if mark.start == mark.end:  # an element without text is placed like a single tag
            self._points.append(mark)


def _segment(piece: Sequence[Part], line: int, is_escaped: bool) -> Segment:
    builder = _Builder(is_escaped)
    trailing = ""
    for number, part in enumerate(piece):
        if part.kind == "text":
            raw = part.raw
            if number == len(piece) - 1:  # blanks at the end are not part of the text
                trailing = raw[len(raw.rstrip(_BLANKS)) :]
                raw = raw.rstrip(_BLANKS)
            builder.add_text(raw)
        elif part.kind == "whole":
            builder.add_point(part.raw)
        elif part.kind == "start":
            builder.open(part.raw)
        else:
            builder.close(part.raw)
    text = builder.text.strip(" ")
    middles = [(start + end) / 2 for start, end in units(text)]
    for mark in builder.top.children:
        _count_units(mark, middles)
    line += len(builder.before.split("\n")) - 1
    return Segment(text, builder.top.children, builder.before, trailing, builder.entities, line, is_escaped)


def _count_units(mark: Mark, middles: Sequence[float]) -> None:
    """Converts positions in the text to indices of units, in place; `middles` are the middle positions of all units."""
    for name in ("start", "end"):
        setattr(mark, name, bisect.bisect_left(middles, getattr(mark, name)))
    for child in mark.children:
        _count_units(child, middles)
