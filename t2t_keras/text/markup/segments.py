"""Extracts the segments of a document: the text that a model reads, and the tags and placeholders that it does not."""

import bisect
import collections
import dataclasses
import functools
import html
import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from html.entities import html5
from typing import NamedTuple, cast

from t2t_keras.text.markup.placeholders import CONVERSION, protect
from t2t_keras.text.markup.reading import Part
from t2t_keras.text.markup.slots import Slot, Slots
from t2t_keras.text.repair import CONTROL
from t2t_keras.text.words import is_of_word, is_opening, units

# HTML allows some old entities without a semicolon.
_OLD_ENTITIES = "|".join(name for name in html5 if not name.endswith(";"))
ENTITY = re.compile(
    rf"&(?:#\d+;|#[xX][0-9a-fA-F]+;|[A-Za-z][A-Za-z0-9]*;|(?:{_OLD_ENTITIES})(?![A-Za-z0-9=;]))", re.ASCII
)
_ITEM = re.compile(f"(?P<entity>{ENTITY.pattern})|(?P<placeholder>{CONVERSION.pattern})|(?P<apostrophe>'')", re.ASCII)
_SPACES = " \t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"
_JOINERS = "\u200c\u200d"
# These characters only allow or forbid line breaks, so they belong to the words and spaces around them: soft hyphen,
# zero-width space, word joiner, zero-width no-break space. Control characters are treated in the same way.
_BREAK_CONTROLS = re.compile(f"[\u00ad\u200b\u2060\ufeff{CONTROL}]")
# The names of elements that stand for separate words, such as exponents and footnote marks.
_APART = frozenset(["sub", "sup", "subscript", "superscript", "footnote", "fn", "note", "xref"])
_ENDINGS = ".,;:!?…)]}»”"
# The longest exponent or footnote mark, in parts.
_MAX_PARTS = 12
_ORDINAL = re.compile(r"\s*[^\W\d_]{2,}\s*")
_LETTERS = re.compile(r"[^\W\d_]")
_LINE_BREAK = re.compile("(\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])")
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
        space_before: whether a space precedes the mark; None at the beginning of the segment.
        space_after: whether a space follows the mark; None at the end of the segment.
    """

    opening: str
    closing: str = ""
    start: int = 0
    end: int = 0
    children: list["Mark"] = dataclasses.field(default_factory=list)
    space_before: bool | None = None
    space_after: bool | None = None

    @property
    def raw(self) -> str:
        """The markup of the mark and its children, without text."""
        return self.opening + "".join(child.raw for child in self.children) + self.closing


class SourceUnit(NamedTuple):
    """A word of a segment, or a part of a word if marks divide the word.

    Attributes:
        start: position of its first character in the text.
        end: position after its last character.
        word: index of the word.
        raw: spelling in the document.
    """

    start: int
    end: int
    word: int
    raw: str


class Gap(NamedTuple):
    """Everything between two units of a segment.

    Attributes:
        raw: its spaces and marks.
        marks: its marks.
        has_space: whether the text has a space there.
        is_inserted: whether only the text has the space, so that the model reads two words.
    """

    raw: str
    marks: str = ""
    has_space: bool = False
    is_inserted: bool = False


@dataclasses.dataclass
class Segment:
    """One or more sentences that are translated together.

    Attributes:
        text: the text to translate, without marks.
        marks: the marks that were removed from the text.
        units: the units of the text.
        gaps: the gap before each unit, and the gap after the last unit.
        before: spaces before the segment.
        after: spaces after the segment.
        entities: spelling of characters that the document writes as entities.
        line: line of the document in which the segment begins, from 1.
        is_escaped: whether the document uses entities.
        is_message: whether the segment belongs to an ICU message.
    """

    text: str
    marks: list[Mark]
    units: list[SourceUnit] = dataclasses.field(default_factory=list)
    gaps: list[Gap] = dataclasses.field(default_factory=list)
    before: str = ""
    after: str = ""
    entities: dict[str, str] = dataclasses.field(default_factory=dict)
    line: int = 1
    is_escaped: bool = True
    is_message: bool = False


class Dialect(NamedTuple):
    """How a text is written.

    Attributes:
        is_escaped: whether it uses entities.
        keeps_lines: whether line breaks divide it.
        quote: the quote around an attribute; "" for other text.
        is_message: whether it is a part of an ICU message.
    """

    is_escaped: bool = True
    keeps_lines: bool = False
    quote: str = ""
    is_message: bool = False


_DOCUMENT = Dialect()


def segments(parts: Sequence[Part], slots: Slots | None = None, dialect: Dialect = _DOCUMENT) -> list[str | Segment]:
    """Divides a document into segments to translate and strings that stay unchanged, in order.

    A run of parts with unbalanced braces stays unchanged.

    Args:
        parts: parts of the document.
        slots: takes the sub-messages of placeholders.
        dialect: how the text is written.
    """
    slots = Slots() if slots is None else slots
    pieces: list[str | Segment] = []
    for is_inline, group in itertools.groupby(parts, key=lambda part: part.is_inline):
        run = list(group)
        protected = protect(run, functools.partial(_add_message, slots, dialect)) if is_inline else None
        if protected is None:
            pieces.append("".join(part.raw for part in run))
            continue
        line_dialect = dialect._replace(is_message=dialect.is_message or protected.is_message)
        for line_run in _split_lines(protected.parts) if dialect.keeps_lines else [protected.parts]:
            pieces += _pieces(line_run, line_dialect)
    return pieces


def _add_message(slots: Slots, dialect: Dialect, parts: Sequence[Part], is_message: bool) -> str:
    """Stores a sub-message of a placeholder, and returns its marker."""
    return slots.add(Slot(_pieces(parts, dialect._replace(is_message=is_message))))


def _pieces(run: Sequence[Part], dialect: Dialect) -> list[str | Segment]:
    pieces: list[str | Segment] = []
    for piece in _split_run(_merge_numbers(run)):
        segment = _segment(piece, dialect) if any(part.kind == "text" for part in piece) else None
        has_letters = segment is not None and any(map(str.isalpha, segment.text))
        pieces.append(cast(Segment, segment) if has_letters else "".join(part.raw for part in piece))
    return pieces


def _merge_numbers(run: Sequence[Part]) -> list[Part]:
    """Merges each exponent, index or footnote mark without letters into one part, which stays unchanged."""
    result: list[Part] = []
    number = 0
    while number < len(run):
        last = _end_of_number(run, number)
        part = run[number]
        if last > number:
            raw = "".join(each.raw for each in run[number : last + 1])
            part = Part("whole", raw, part.name, line=part.line)
        result.append(part)
        number = last + 1
    return result


def _end_of_number(run: Sequence[Part], first: int) -> int:
    """Returns the number of the end tag of an element like "<sup>2</sup>" by that of its start tag, or else `first`."""
    name = run[first].name
    if run[first].kind != "start" or _local(name) not in _APART:
        return first
    texts = []
    for number in range(first + 1, min(len(run), first + _MAX_PARTS)):
        part = run[number]
        if part.kind == "text":
            texts.append(html.unescape(part.raw))
        elif part.name == name:
            text = "".join(texts)
            return number if part.kind == "end" and text.strip() and not _LETTERS.search(text) else first
    return first


def _split_lines(run: Sequence[Part]) -> Iterator[list[Part]]:
    """Splits a run of parts at the line breaks of its text, which become runs of a single part."""
    line: list[Part] = []
    for part in run:
        if part.kind != "text":
            line.append(part)
            continue
        number = part.line
        for place, raw in enumerate(_LINE_BREAK.split(part.raw)):
            each = dataclasses.replace(part, raw=raw, line=number, kind="whole" if place % 2 else "text")
            number += raw.count("\n")
            if place % 2:
                yield from (line, [each])
                line = []
            elif raw:
                line.append(each)
    yield line


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
    separators |= _menu_links(run, partners)
    # An element must not extend over a cut, so its tags become cuts too.
    while True:
        cuts = sorted(separators)
        crossings = [
            pair for pair in partners.items() if bisect.bisect_left(cuts, pair[1]) > bisect.bisect(cuts, pair[0])
        ]
        if not crossings:
            break
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


def _menu_links(run: Sequence[Part], partners: dict[int, int]) -> set[int]:
    """Removes the links of a menu from `partners`, and returns the numbers of their tags.

    A menu is a run with at least two links and without words outside of links.
    """
    links, number = [], 0
    while number < len(run):
        last = partners.get(number, number)
        if any(part.kind == "text" and _LETTERS.search(ENTITY.sub("", part.raw)) for part in run[number : last + 1]):
            if run[number].name != "a" or last == number:
                return set()
            links.append(number)
        number = last + 1
    if len(links) < 2:
        return set()
    return {place for number in links for place in (number, partners.pop(number))}


def _trim(piece: Sequence[Part]) -> list[list[Part]]:
    """Separates the parts before the first text or element and after the last one; leaves out empty lists."""
    inner = [n for n, part in enumerate(piece) if part.kind != "whole" and (part.kind != "text" or part.raw.strip())]
    if not inner:
        return [list(piece)]
    cuts = [piece[: inner[0]], piece[inner[0] : inner[-1] + 1], piece[inner[-1] + 1 :]]
    return [list(cut) for cut in cuts if cut]


class _Builder:
    """Collects the text and the marks of a segment."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.characters: list[str] = []
        self.places: list[tuple[int, int]] = []  # start and end of each character in the raw text
        self.raw: list[str] = []
        self._raw_length = 0
        self.before = ""
        self.entities: dict[str, str] = {}
        self.inserted: set[int] = set()  # positions of spaces that only the text has
        self.spaces = ""  # since the last character or point
        self._has_space = self._follows_point = False  # since the last character
        # Whether the model should see the next character as the start of a new word: in any case, or only if it would
        # continue a word.
        self._is_apart = self._touches = False
        self._follows_end = False  # whether an end tag precedes
        self.top = Mark("")
        self._open = [self.top]
        self._points: list[Mark] = []  # marks that nothing follows yet

    def add_text(self, raw: str) -> None:
        place = 0
        for match in _ITEM.finditer(raw):
            if match["entity"] and not self._dialect.is_escaped:
                continue
            if match["apostrophe"] and not self._dialect.is_message:
                continue
            self._add_all(raw[place : match.start()])
            place = match.end()
            self._add_item(match)
        self._add_all(raw[place:])

    def _add_all(self, characters: str) -> None:
        for character in characters:
            if not character.isalnum() and _is_direction(character):
                self.add_point(character, joins=True)
            else:
                self._add(character, character)

    def _add_item(self, match: re.Match) -> None:
        if match["apostrophe"]:
            self.entities["'"] = "''"
            self._add("'", "''")
            return
        character = html.unescape(match[0]) if match["entity"] else ""
        if len(character) != 1:
            self.add_point(match[0], joins=False)
        elif character in _SPACES or _BREAK_CONTROLS.match(character):
            self._add(character, match[0])
        elif unicodedata.category(character)[0] in "LMNP" or character in "<>&" + _JOINERS:
            self.entities[character] = match[0] if match[0].endswith(";") else f"{match[0]};"
            self._add(character, match[0])
        else:
            self.add_point(match[0], joins=_is_direction(character))

    def _add(self, character: str, raw: str) -> None:
        if _BREAK_CONTROLS.match(character):
            self._add_raw(raw)
            return
        if character in _SPACES:
            self._add_raw(raw)
            self.spaces += raw
            self._follow(True)
            self._has_space, self._follows_end = True, False
            return
        self._follow(False)
        if not self.characters and not self._follows_point:
            self.before = self.spaces
        if self.characters and self._needs_space(self.characters[-1], character):
            if not self._has_space:
                self.inserted.add(len(self.characters))
            self.characters.append(" ")
            self.places.append((self._raw_length, self._raw_length))
        self.characters.append(character)
        self.places.append((self._raw_length, self._raw_length + len(raw)))
        self._add_raw(raw)
        self.spaces = ""
        self._has_space = self._follows_point = self._is_apart = self._touches = self._follows_end = False

    def _needs_space(self, last: str, character: str) -> bool:
        if self._follows_point and (_closes(character) or is_opening(last)):
            return False
        if self._has_space or self._is_apart:
            return True
        return self._touches and is_of_word(character) and (is_of_word(last) or last in _ENDINGS)

    def _add_raw(self, raw: str) -> None:
        self.raw.append(raw)
        self._raw_length += len(raw)

    def _follow(self, is_space: bool) -> None:
        for point in self._points:
            point.space_after = is_space
        self._points.clear()

    def add_point(self, raw: str, joins: bool) -> None:
        is_first = not self.characters and not self._follows_point
        if is_first:
            self.before, self.spaces = self.spaces, ""
        place = len(self.characters)
        point = Mark(raw, start=place, end=place)
        point.space_before = None if is_first else bool(self.spaces)
        self._follow(bool(self.spaces))
        self._open[-1].children.append(point)
        self._points.append(point)
        self._follows_point = True
        # If a placeholder separates two words, the model should not see them as one.
        self._is_apart = self._is_apart or not (joins or is_first)
        self._follows_end = self._follows_end and joins
        self.spaces = ""
        self._add_raw(raw)

    def open(self, raw: str, is_apart: bool) -> None:
        self._touches = self._touches or is_apart or self._follows_end
        mark = Mark(raw, start=len(self.characters))
        mark.space_before = bool(self.spaces) if self.characters else None
        self._open[-1].children.append(mark)
        self._open.append(mark)
        self._add_raw(raw)

    def close(self, raw: str, is_apart: bool) -> None:
        mark = self._open.pop()
        mark.closing, mark.end = raw, len(self.characters)
        self._points.append(mark)
        self._touches = self._touches or is_apart
        self._follows_end = True
        self._add_raw(raw)


def _is_direction(character: str) -> bool:
    """Returns whether a character is invisible and does not belong to a word, such as a direction mark."""
    return (
        unicodedata.category(character) == "Cf" and character not in _JOINERS and not _BREAK_CONTROLS.match(character)
    )


def _closes(character: str) -> bool:
    return not is_of_word(character) and not is_opening(character)


def _segment(piece: Sequence[Part], dialect: Dialect) -> Segment:
    builder = _Builder(dialect)
    apart: list[bool] = []  # whether each open element stands for a separate word
    for number, part in enumerate(piece):
        if part.kind == "text":
            builder.add_text(part.raw)
        elif part.kind == "whole":
            builder.add_point(part.raw, part.joins)
        elif part.kind == "start":
            apart.append(_is_apart(piece, number))
            builder.open(part.raw, apart[-1])
        else:
            builder.close(part.raw, apart.pop())
    marks = builder.top.children
    text_units, gaps = _units_and_gaps(builder)
    starts = [unit.start for unit in text_units]
    for mark in marks:
        _count_units(mark, starts)
    markups = [""] * len(gaps)
    for mark in marks:
        _add_markup(mark, markups)
    gaps = [gap._replace(marks=markup) for gap, markup in zip(gaps, markups, strict=True)]
    entities = ({dialect.quote: html.escape(dialect.quote)} if dialect.quote else {}) | builder.entities
    line = piece[0].line + builder.before.count("\n")
    return Segment(
        "".join(builder.characters),
        marks,
        text_units,
        gaps,
        builder.before,
        builder.spaces,
        entities,
        line,
        dialect.is_escaped,
        dialect.is_message,
    )


def _local(name: str) -> str:
    """Returns the name of an element without its prefix."""
    return name.rpartition(":")[2]


def _is_apart(piece: Sequence[Part], number: int) -> bool:
    """Returns whether the element of a start tag stands for a separate word, unlike the "st" of "1<sup>st</sup>"."""
    if _local(piece[number].name) not in _APART:
        return False
    before = piece[number - 1].raw if number else ""
    inner = piece[number + 1].raw if number + 1 < len(piece) else ""
    return not (before[-1:].isdigit() and _ORDINAL.fullmatch(inner))


def _units_and_gaps(builder: _Builder) -> tuple[list[SourceUnit], list[Gap]]:
    """Returns the units of the text and the gaps around them, whose `marks` are not set."""
    text, raw, places = "".join(builder.characters), "".join(builder.raw), builder.places
    cuts = sorted(_positions(builder.top.children))
    text_units: list[SourceUnit] = []
    gaps: list[Gap] = []
    last, last_raw = 0, 0
    for word, (start, end) in enumerate(units(text)):
        inner = cuts[bisect.bisect_right(cuts, start) : bisect.bisect_left(cuts, end)]
        for first, stop in itertools.pairwise([start, *inner, end]):
            first_raw, stop_raw = places[first][0], places[stop - 1][1]
            gaps.append(Gap(raw[last_raw:first_raw], "", last < first, last in builder.inserted))
            text_units.append(SourceUnit(first, stop, word, raw[first_raw:stop_raw]))
            last, last_raw = stop, stop_raw
    return text_units, [*gaps, Gap(raw[last_raw:])]


def _positions(marks: Sequence[Mark]) -> set[int]:
    positions: set[int] = set()
    for mark in marks:
        positions |= {mark.start, mark.end} | _positions(mark.children)
    return positions


def _count_units(mark: Mark, starts: Sequence[int]) -> None:
    """Converts positions in the text to indices of units, in place; `starts` are the positions of all units."""
    mark.start, mark.end = (bisect.bisect_left(starts, place) for place in (mark.start, mark.end))
    for child in mark.children:
        _count_units(child, starts)


def _add_markup(mark: Mark, markups: list[str]) -> None:
    """Adds the tags of a mark to the markup of each gap between units, in place."""
    markups[mark.start] += mark.opening
    for child in mark.children:
        _add_markup(child, markups)
    markups[mark.end] += mark.closing
