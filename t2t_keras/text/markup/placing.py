"""Puts a sentence's tags and placeholders into its translation, each once, where the words beside them went."""

import bisect
import collections
import dataclasses
import html
import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np

from t2t_keras.text.markup.segments import PLACEHOLDER, Mark, Segment
from t2t_keras.text.words import is_of_word, units


@dataclasses.dataclass(frozen=True)
class AlignedText:
    """A translation and where it comes from.

    Attributes:
        text: the translation.
        links: (start, end, start, end) of characters: a piece of the translation, and the one of the source that it
            comes from.
    """

    text: str
    links: tuple[tuple[int, int, int, int], ...]


@dataclasses.dataclass(frozen=True)
class _Unit:
    """A word of the translation, or a character of none.

    Attributes:
        text: it.
        source: the number of the source's unit that it comes from, or -1.
        blank: the blank that stands before it, or "".
    """

    text: str
    source: int
    blank: str


@dataclasses.dataclass(frozen=True)
class _Place:
    """A mark and the units that it has in the translation, which are none for what has no text."""

    mark: Mark
    start: int
    end: int


def placed(segment: Segment, translation: AlignedText) -> str:
    """The translation of a sentence with all its markup; nesting is that of the source, whatever the links are."""
    own = _units(segment, translation)
    num_sources = len(units(segment.text))
    pieces = list(_written(segment.marks, own, (0, len(own)), (0, num_sources)))
    text, last, pending = "", None, ""
    for piece in pieces:
        if isinstance(piece, str):
            # A blank comes after the end tags and before the start tags.
            pending += piece
            continue
        blank = (getattr(piece, "blank", "") or " ") if last is not None and _has_blank(last, piece) else ""
        start_tag = re.search("<(?!/)", pending)
        ends = start_tag.start() if start_tag else len(pending)
        text += pending[:ends] + blank + pending[ends:] + _spelled(piece, segment)
        last, pending = piece, ""
    return segment.before + text + pending + segment.after


def _units(segment: Segment, translation: AlignedText) -> list[_Unit]:
    """The units of a translation, without placeholders: the model was given none."""
    text = translation.text
    sources, targets = units(segment.text), units(text)
    weights: list[collections.Counter[int]] = [collections.Counter() for _ in targets]
    for target_start, target_end, source_start, source_end in translation.links:
        for number, shared in _shared(targets, target_start, target_end):
            for source, also_shared in _shared(sources, source_start, source_end):
                weights[number][source] += shared * also_shared
    invented = [match.span() for match in PLACEHOLDER.finditer(text)]
    found = []
    for (start, end), own in zip(targets, weights, strict=True):
        if not any(True for _ in _shared(invented, start, start + 1)):
            source, _ = max(own.items(), key=lambda item: (item[1], -item[0]), default=(-1, 0))
            before = text[:start][-1:]
            found.append(_Unit(text[start:end], source, before if before.isspace() else ""))
    return found


def _shared(places: Sequence[tuple[int, int]], start: int, end: int) -> Iterator[tuple[int, int]]:
    """The numbers of those places, which are disjoint and in order, that share characters with a range, and how many.

    A text may have thousands of places and of ranges, so that these are found and not searched for.
    """
    for number in range(bisect.bisect_right(places, start, key=lambda place: place[1]), len(places)):
        first, last = places[number]
        if first >= end or start >= end:
            return
        yield number, min(end, last) - max(start, first)


def _written(
    marks: Sequence[Mark], own: Sequence[_Unit], target: tuple[int, int], source: tuple[int, int]
) -> Iterator[str | _Unit | Mark]:
    """Tags, as strings, and units and single marks of a range, in order."""
    points: dict[int, list[Mark]] = collections.defaultdict(list)
    elements: dict[int, _Place] = {}
    for each in _places(marks, own, target, source):
        if each.start < each.end:
            elements[each.start] = each
        else:
            points[each.start].append(each.mark)
    place = target[0]
    while True:
        yield from points[place]
        if element := elements.get(place):
            yield element.mark.opening
            inner = (element.start, element.end), (element.mark.start, element.mark.end)
            yield from _written(element.mark.children, own, *inner)
            yield element.mark.closing
            place = element.end
        elif place < target[1]:
            yield own[place]
            place += 1
        else:
            return


def _places(
    marks: Sequence[Mark], own: Sequence[_Unit], target: tuple[int, int], source: tuple[int, int]
) -> list[_Place]:
    """The places of marks, in their order; elements get disjoint ranges, those of most words first."""
    found: dict[int, _Place] = {}
    is_free = [True] * len(own)
    elements = [number for number, mark in enumerate(marks) if mark.closing and mark.end > mark.start]
    for number in sorted(elements, key=lambda number: marks[number].start - marks[number].end):
        mark = marks[number]
        is_all = (mark.start, mark.end) == source and target[0] < target[1]
        start, end = target if is_all else _span(mark, own, target, is_free)
        if start < end:
            found[number] = _Place(mark, start, end)
            is_free[start:end] = [False] * (end - start)
    is_allowed = np.ones(target[1] - target[0] + 1, bool)
    for each in found.values():
        is_allowed[each.start + 1 - target[0] : each.end - target[0]] = False
    allowed, sources = np.flatnonzero(is_allowed), np.array([unit.source for unit in own[slice(*target)]], int)
    for number, mark in enumerate(marks):
        if number not in found:
            place = target[0] + _point(mark, sources, source, allowed)
            found[number] = _Place(mark, place, place)
    return [found[number] for number in range(len(marks))]


def _span(mark: Mark, own: Sequence[_Unit], target: tuple[int, int], is_free: Sequence[bool]) -> tuple[int, int]:
    """The free units, next to each other, that are an element's most of all, and the fewest others; (0, 0) if none are.

    This is the range of the largest sum where its own units count 1 and others -1, found in one pass.
    """
    best, span = 0.0, (0, 0)
    total, start = 0.0, target[0]
    for place in range(*target):
        if not is_free[place] or total < 0:
            total, start = 0.0, place
        if not is_free[place]:
            start = place + 1
            continue
        unit = own[place]
        weight = 1.0 if is_of_word(unit.text[0]) else 0.5
        total += weight if mark.start <= unit.source < mark.end else -weight
        if total > best:
            best, span = total, (start, place + 1)
    return span


def _point(mark: Mark, own: np.ndarray, source: tuple[int, int], allowed: np.ndarray) -> int:
    """Where a mark without text stands: by the word after it or, where it is attached to that, the one before it.

    `own` are the sources of a range of units, of those that come from `source`; `allowed` are places among them, of
    which one is returned. A sentence may have thousands of marks: what is done for each is done by arrays.
    """
    before = 1 + np.flatnonzero(own == mark.start - 1) if mark.start > source[0] else own[:0]
    after = np.flatnonzero(own == mark.end) if mark.end < source[1] else own[:0]
    choices = [*after[:1], *before[-1:]]
    if mark.blank_before is False and mark.blank_after is not False:
        choices = [*before[-1:], *after[:1]]
    if choices:
        return int(allowed[np.abs(allowed - choices[0]).argmin()])
    # Units that would stand on the wrong side of it: each that is passed, and is from behind the mark, is one more.
    misplaced = np.concatenate([[0], np.cumsum(np.where(own >= mark.start, 1, -1))])
    return int(allowed[misplaced[allowed].argmin()])


def _has_blank(left: _Unit | Mark, right: _Unit | Mark) -> bool:
    if isinstance(right, _Unit):
        if isinstance(left, _Unit):
            return bool(right.blank)
        if left.blank_after is False and right.source == left.end:
            return False
        return bool(left.blank_after or right.blank) or is_of_word(right.text[0])
    if isinstance(left, _Unit):
        if right.blank_before is False and left.source == right.start - 1:
            return False
        return unicodedata.category(left.text[-1]) not in ("Ps", "Pi") and right.blank_before is not False
    return not (right.blank_before is False and left.blank_after is False)


def _spelled(piece: _Unit | Mark, segment: Segment) -> str:
    if isinstance(piece, Mark):
        return piece.raw
    if not segment.is_escaped:
        return piece.text
    return "".join(segment.entities.get(each) or html.escape(each, quote=False) for each in piece.text)
