"""Places the tags and placeholders of a sentence in its translation, each once, according to the word alignment."""

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
    """A translation and its alignment with the source.

    Attributes:
        text: the translation.
        links: (start, end, source start, source end) of aligned pieces, as character positions in the translation and
            in the source.
    """

    text: str
    links: tuple[tuple[int, int, int, int], ...]


@dataclasses.dataclass(frozen=True)
class _Unit:
    """A word of the translation, or a character that is not part of a word.

    Attributes:
        text: the word or character.
        source: index of the source unit that it is aligned with, or -1.
        blank: the blank before it, or "".
    """

    text: str
    source: int
    blank: str


@dataclasses.dataclass(frozen=True)
class _Place:
    """A mark and the range of units of the translation that it encloses, which is empty for a mark without text."""

    mark: Mark
    start: int
    end: int


def placed(segment: Segment, translation: AlignedText) -> str:
    """Returns the translation of a sentence with all its markup; tags are always nested as in the source."""
    target_units = _units(segment, translation)
    num_sources = len(units(segment.text))
    pieces = list(_pieces(segment.marks, target_units, (0, len(target_units)), (0, num_sources)))
    text, last, pending = "", None, ""
    for piece in pieces:
        if isinstance(piece, str):
            # A blank goes after the end tags and before the start tags.
            pending += piece
            continue
        blank = (getattr(piece, "blank", "") or " ") if last is not None and _has_blank(last, piece) else ""
        start_tag = re.search("<(?!/)", pending)
        ends = start_tag.start() if start_tag else len(pending)
        text += pending[:ends] + blank + pending[ends:] + _spell(piece, segment)
        last, pending = piece, ""
    return segment.before + text + pending + segment.after


def _units(segment: Segment, translation: AlignedText) -> list[_Unit]:
    """Returns the units of a translation, except for placeholders, which the model must have invented."""
    text = translation.text
    sources, targets = units(segment.text), units(text)
    weights: list[collections.Counter[int]] = [collections.Counter() for _ in targets]
    for target_start, target_end, source_start, source_end in translation.links:
        for number, target_overlap in _overlaps(targets, target_start, target_end):
            for source, source_overlap in _overlaps(sources, source_start, source_end):
                weights[number][source] += target_overlap * source_overlap
    placeholder_spans = [match.span() for match in PLACEHOLDER.finditer(text)]
    target_units = []
    for (start, end), source_weights in zip(targets, weights, strict=True):
        if not any(True for _ in _overlaps(placeholder_spans, start, start + 1)):
            source, _ = max(source_weights.items(), key=lambda item: (item[1], -item[0]), default=(-1, 0))
            previous = text[:start][-1:]
            target_units.append(_Unit(text[start:end], source, previous if previous.isspace() else ""))
    return target_units


def _overlaps(places: Sequence[tuple[int, int]], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields the index of each place that overlaps a range, and the number of common characters.

    Uses binary search, because a text may have thousands of places and of ranges.

    Args:
        places: disjoint ranges (start, end) in order.
        start: start of the range.
        end: end of the range.
    """
    for number in range(bisect.bisect_right(places, start, key=lambda place: place[1]), len(places)):
        first, last = places[number]
        if first >= end or start >= end:
            return
        yield number, min(end, last) - max(start, first)


def _pieces(
    marks: Sequence[Mark], target_units: Sequence[_Unit], target: tuple[int, int], source: tuple[int, int]
) -> Iterator[str | _Unit | Mark]:
    """Yields the tags (as strings), the units, and the marks without text of a range, in order.

    Args:
        marks: the marks in the range.
        target_units: the units of the translation.
        target: the range of units of the translation.
        source: the corresponding range of units of the source.
    """
    points: dict[int, list[Mark]] = collections.defaultdict(list)
    elements: dict[int, _Place] = {}
    for each in _places(marks, target_units, target, source):
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
            yield from _pieces(element.mark.children, target_units, *inner)
            yield element.mark.closing
            place = element.end
        elif place < target[1]:
            yield target_units[place]
            place += 1
        else:
            return


def _places(
    marks: Sequence[Mark], target_units: Sequence[_Unit], target: tuple[int, int], source: tuple[int, int]
) -> list[_Place]:
    """Returns the places of marks, in the order of the marks; arguments as in `_pieces`.

    Elements get disjoint ranges, and those with the most words in the source are placed first.
    """
    mark_places: dict[int, _Place] = {}
    is_free = [True] * len(target_units)
    elements = [number for number, mark in enumerate(marks) if mark.closing and mark.end > mark.start]
    for number in sorted(elements, key=lambda number: marks[number].start - marks[number].end):
        mark = marks[number]
        is_all = (mark.start, mark.end) == source and target[0] < target[1]
        start, end = target if is_all else _span(mark, target_units, target, is_free)
        if start < end:
            mark_places[number] = _Place(mark, start, end)
            is_free[start:end] = [False] * (end - start)
    is_allowed = np.ones(target[1] - target[0] + 1, bool)
    for each in mark_places.values():
        is_allowed[each.start + 1 - target[0] : each.end - target[0]] = False
    positions, sources = (
        np.flatnonzero(is_allowed),
        np.array([unit.source for unit in target_units[slice(*target)]], int),
    )
    for number, mark in enumerate(marks):
        if number not in mark_places:
            place = target[0] + _point(mark, sources, source, positions)
            mark_places[number] = _Place(mark, place, place)
    return [mark_places[number] for number in range(len(marks))]


def _span(
    mark: Mark, target_units: Sequence[_Unit], target: tuple[int, int], is_free: Sequence[bool]
) -> tuple[int, int]:
    """Returns the range of free units that fits an element best; (0, 0) if no free unit comes from the element.

    In this range, the sum of weights is largest: units from the element have the weight 1, other units -1, and
    punctuation half of that. It is found in one pass (Kadane's algorithm).
    """
    best, span = 0.0, (0, 0)
    total, start = 0.0, target[0]
    for place in range(*target):
        if not is_free[place] or total < 0:
            total, start = 0.0, place
        if not is_free[place]:
            start = place + 1
            continue
        unit = target_units[place]
        weight = 1.0 if is_of_word(unit.text[0]) else 0.5
        total += weight if mark.start <= unit.source < mark.end else -weight
        if total > best:
            best, span = total, (start, place + 1)
    return span


def _point(mark: Mark, unit_sources: np.ndarray, source: tuple[int, int], positions: np.ndarray) -> int:
    """Returns the position of a mark without text: before the unit that follows it in the source, if possible.

    A mark that is attached only to the unit before it goes after this unit instead. The computation is vectorised,
    because a sentence may have thousands of marks.

    Args:
        mark: the mark.
        unit_sources: source indices of the units in a range of the translation, int [units].
        source: the corresponding range of units of the source.
        positions: possible positions in the range, int [positions].
    """
    previous_ends = 1 + np.flatnonzero(unit_sources == mark.start - 1) if mark.start > source[0] else unit_sources[:0]
    next_starts = np.flatnonzero(unit_sources == mark.end) if mark.end < source[1] else unit_sources[:0]
    choices = [*next_starts[:1], *previous_ends[-1:]]
    if mark.blank_before is False and mark.blank_after is not False:
        choices = [*previous_ends[-1:], *next_starts[:1]]
    if choices:
        return int(positions[np.abs(positions - choices[0]).argmin()])
    # The number of units on the wrong side of each position, up to a constant: each unit before the position adds 1 if
    # it comes from after the mark, and -1 otherwise.
    num_misplaced = np.concatenate([[0], np.cumsum(np.where(unit_sources >= mark.start, 1, -1))])
    return int(positions[num_misplaced[positions].argmin()])


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


def _spell(piece: _Unit | Mark, segment: Segment) -> str:
    if isinstance(piece, Mark):
        return piece.raw
    if not segment.is_escaped:
        return piece.text
    return "".join(segment.entities.get(each) or html.escape(each, quote=False) for each in piece.text)
