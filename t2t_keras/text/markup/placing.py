"""Places the tags and placeholders of a sentence in its translation, each once, according to the word alignment."""

import bisect
import collections
import dataclasses
import html
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from t2t_keras.text.markup.placeholders import placeholder_spans
from t2t_keras.text.markup.segments import Mark, Segment
from t2t_keras.text.words import is_closing, is_of_word, is_opening, units

Link = tuple[int, int, int, int]


@dataclasses.dataclass(frozen=True)
class AlignedText:
    """A translation and its alignment with the source.

    Attributes:
        text: the translation.
        links: (start, end, source start, source end) of aligned pieces, as character positions in the translation and
            in the source.
        weak_links: the same, from each source piece without a link to the piece of the translation that attends to it
            most. They place an element whose words have no links.
    """

    text: str
    links: tuple[Link, ...]
    weak_links: tuple[Link, ...] = ()

    @classmethod
    def unchanged(cls, text: str) -> "AlignedText":
        """Returns a text in place of its translation, with each character linked to itself."""
        return cls(text, tuple((place, place + 1, place, place + 1) for place in range(len(text))))

    def edited(self, text: str, places: Sequence[int]) -> "AlignedText":
        """Returns the alignment of an edited translation, without links of pieces that were removed.

        Args:
            text: the edited translation.
            places: the position in `text` of each position in the translation, its end included.
        """
        links, weak_links = (
            tuple((places[start], places[end], *source) for start, end, *source in kind if places[start] < places[end])
            for kind in (self.links, self.weak_links)
        )
        return AlignedText(text, cast(tuple[Link, ...], links), cast(tuple[Link, ...], weak_links))


@dataclasses.dataclass(frozen=True)
class _Unit:
    """A word of the translation, or a character that is not part of a word.

    Attributes:
        text: the word or character.
        source: index of the source unit that it is aligned with, or -1.
        space: the space before it, or "".
        raw: its spelling in the document, for a unit that is the same as in the source; else None.
        weak_sources: indices of the source units with a weak link to it.
    """

    text: str
    source: int
    space: str
    raw: str | None = None
    weak_sources: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class _Place:
    """A mark and the range of units of the translation that it encloses, which is empty for a mark without text."""

    mark: Mark
    start: int
    end: int


def placed(segment: Segment, translation: AlignedText) -> str:
    """Returns the translation of a sentence with all its markup; tags are always nested as in the source.

    Between two words that are adjacent in the source too, the spaces and the markup stay as they are.
    """
    target_units = _units(segment, translation)
    texts: list[str] = []
    gap: list[str | Mark] = []
    left: _Unit | None = None
    for piece in _pieces(segment.marks, target_units, (0, len(target_units)), (0, len(segment.units))):
        if isinstance(piece, _Unit):
            texts += [_gap(segment, left, gap, piece), piece.raw if piece.raw is not None else _spell(piece, segment)]
            left, gap = piece, []
        else:
            gap.append(piece)
    texts.append(_gap(segment, left, gap, None))
    return "".join(texts)


def _gap(segment: Segment, left: _Unit | None, pieces: Sequence[str | Mark], right: _Unit | None) -> str:
    """Returns the spaces and markup between two units of the translation, or at one of its ends if a unit is None.

    Args:
        segment: the source.
        left: the unit before.
        pieces: the tags (as strings), and the marks without text in between.
        right: the unit after.
    """
    same = _same_gap(segment, left, pieces, right)
    raw = _new_gap(segment, left, pieces, right) if same is None else same
    is_same = same is not None and left is not None and left.raw is not None
    # A single apostrophe before a brace would begin a quotation.
    begins_quote = raw[0] in "{}#'" if raw else right is None
    if segment.is_message and begins_quote and not is_same and left and _spell(left, segment) == "'":
        return f"'{raw}"
    return raw


def _same_gap(segment: Segment, left: _Unit | None, pieces: Sequence[str | Mark], right: _Unit | None) -> str | None:
    """Returns the gap between the same units in the source; None if its markup differs; arguments as in `_gap`."""
    number = left.source + 1 if left else 0
    if number != (right.source if right else len(segment.units)) or (left or right) is None:
        return None
    gap = segment.gaps[number]
    if (left and left.source < 0) or (left and right and gap.has_space != bool(right.space)):
        return None
    markup = "".join(piece if isinstance(piece, str) else piece.raw for piece in pieces)
    return gap.raw if gap.marks == markup else None


def _new_gap(segment: Segment, left: _Unit | None, pieces: Sequence[str | Mark], right: _Unit | None) -> str:
    """Returns the markup between two units with the spaces that it needs; arguments as in `_gap`."""
    # Elements that lost their words are like tags.
    pieces = [piece.raw if isinstance(piece, Mark) and _lost_words(piece) else piece for piece in pieces]
    is_tags = bool(pieces) and all(isinstance(piece, str) for piece in pieces)
    is_first = right is not None and (left is None or left.source != right.source)
    joins = is_tags and is_first and segment.gaps[cast(_Unit, right).source].is_inserted
    text = pending = ""
    last: _Unit | Mark | None = left
    for piece in [*pieces, right]:
        if isinstance(piece, str):
            # A space is placed after the end tags and before the start tags.
            pending += piece
            continue
        if piece is None:
            break
        space = (getattr(piece, "space", "") or " ") if last is not None and _has_space(last, piece) else ""
        space = "" if joins else space
        start_tag = re.search("<(?!/)", pending)
        ends = start_tag.start() if start_tag else len(pending)
        text += pending[:ends] + space + pending[ends:] + (piece.raw if isinstance(piece, Mark) else "")
        last, pending = piece, ""
    return ("" if left else segment.before) + text + pending + ("" if right else segment.after)


def _units(segment: Segment, translation: AlignedText) -> list[_Unit]:
    """Returns the units of a translation, except for placeholders, which the model must have invented.

    A word that is the same as in the source has the source's units. Any other word is a single unit.
    """
    text = translation.text
    invented = [span for span in placeholder_spans(text) if text[slice(*span)] not in segment.text]
    targets = [
        span
        for span in units(text)
        if not any(True for _ in _overlaps(invented, *span)) and not _is_invented(text[slice(*span)], segment)
    ]
    source_places = [(unit.start, unit.end) for unit in segment.units]
    sources = aligned_sources(translation.links, targets, source_places)
    weak_sources = linked_sources(translation.weak_links, targets, source_places)
    unchanged = _unchanged_words(segment, [text[slice(*span)] for span in targets], sources)
    words = [unit.word for unit in segment.units]
    target_units = []
    for number, (start, end) in enumerate(targets):
        previous = text[max(start - 1, 0) : start]
        space = previous if previous.isspace() else ""
        word = unchanged.get(number)
        if word is None:
            weak = tuple(weak_sources[number])
            target_units.append(_Unit(text[start:end], sources[number], space, weak_sources=weak))
            continue
        for source in range(bisect.bisect_left(words, word), bisect.bisect_right(words, word)):
            unit = segment.units[source]
            target_units.append(_Unit(segment.text[unit.start : unit.end], source, space, unit.raw))
            space = ""
    return target_units


def _is_invented(text: str, segment: Segment) -> bool:
    """Returns whether a unit is a brace, or "#" in an ICU message, that the model must have invented."""
    return text in ("{", "}", *(["#"] if segment.is_message else [])) and text not in segment.text


def aligned_sources(
    links: Sequence[Link], targets: Sequence[tuple[int, int]], sources: Sequence[tuple[int, int]]
) -> list[int]:
    """Returns the index of the source range with which each range of a translation is aligned, or -1.

    Args:
        links: links of the translation, as in `AlignedText`.
        targets: disjoint ranges (start, end) of the translation in order.
        sources: disjoint ranges of the source in order.
    """
    weights = linked_sources(links, targets, sources)
    return [max(each.items(), key=lambda item: (item[1], -item[0]), default=(-1, 0))[0] for each in weights]


def linked_sources(
    links: Sequence[Link], targets: Sequence[tuple[int, int]], sources: Sequence[tuple[int, int]]
) -> list[collections.Counter[int]]:
    """Returns the indices of the source ranges with links to each range of a translation, and the weights of the links.

    Arguments as in `aligned_sources`.
    """
    weights: list[collections.Counter[int]] = [collections.Counter() for _ in targets]
    for target_start, target_end, source_start, source_end in links:
        for number, target_overlap in _overlaps(targets, target_start, target_end):
            for source, source_overlap in _overlaps(sources, source_start, source_end):
                weights[number][source] += target_overlap * source_overlap
    return weights


def _unchanged_words(segment: Segment, targets: Sequence[str], sources: Sequence[int]) -> dict[int, int]:
    """Returns the index of the source word for each word of a translation that is the same as its source.

    The attention need not link the same words, so these words count as well: all words if the text is the same, words
    that occur once on each side, and their neighbours.

    Args:
        segment: the source.
        targets: the words of the translation.
        sources: index of the source unit that each of them is aligned with, or -1.
    """
    words: list[str] = []
    for unit in segment.units:
        text = segment.text[unit.start : unit.end]
        if unit.word == len(words):
            words.append(text)
        else:
            words[-1] += text
    if list(targets) == words:
        return {number: number for number in range(len(words))}
    unchanged = {}
    counts, target_counts = collections.Counter(words), collections.Counter(targets)
    places = {word: number for number, word in enumerate(words)}
    for number, (text, source) in enumerate(zip(targets, sources, strict=True)):
        if source >= 0 and words[segment.units[source].word] == text:
            unchanged[number] = segment.units[source].word
        elif counts[text] == target_counts[text] == 1 and is_of_word(text[0]):
            unchanged[number] = places[text]
    for step, order in ((1, range(len(targets))), (-1, range(len(targets) - 1, -1, -1))):
        for number in order:
            word = unchanged.get(number - step, -2) + step
            if number not in unchanged and 0 <= word < len(words) and words[word] == targets[number]:
                unchanged[number] = word
    return unchanged


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

    Elements get disjoint ranges, and those with the most words in the source are placed first. Weak links place the
    elements for which no range is found otherwise.
    """
    mark_places: dict[int, _Place] = {}
    range_units = _RangeUnits(target_units, target)
    elements = [number for number, mark in enumerate(marks) if mark.closing and mark.end > mark.start]
    elements.sort(key=lambda number: marks[number].start - marks[number].end)
    for is_weak, number in itertools.product((False, True), elements):
        if number in mark_places:
            continue
        mark = marks[number]
        is_all = (mark.start, mark.end) == source and target[0] < target[1]
        start, end = target if is_all else range_units.span(mark, is_weak=is_weak)
        if start < end:
            mark_places[number] = _Place(mark, start, end)
            range_units.take(start, end)
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


class _RangeUnits:
    """The units of a range of the translation, which elements take.

    Args:
        target_units: the units of the translation.
        target: the range.
    """

    def __init__(self, target_units: Sequence[_Unit], target: tuple[int, int]) -> None:
        self._first = target[0]
        range_units = target_units[slice(*target)]
        weights = (1.0 if is_of_word(unit.text[0]) else 0.5 for unit in range_units)
        self._totals = list(itertools.accumulate(weights, initial=0.0))  # of the units before each unit
        self._by_source = sorted((unit.source, number) for number, unit in enumerate(range_units))
        self._by_weak_source = sorted(
            (source, number)
            for number, unit in enumerate(range_units)
            if is_of_word(unit.text[0])
            for source in unit.weak_sources
        )
        self._taken: list[tuple[int, int]] = []

    def take(self, start: int, end: int) -> None:
        """Takes the units from `start` to `end` for an element."""
        bisect.insort(self._taken, (start - self._first, end - self._first))

    def span(self, mark: Mark, *, is_weak: bool) -> tuple[int, int]:
        """Returns the range of free units that fits an element best; (0, 0) if no free unit comes from the element.

        With `is_weak`, units come from the element by weak links.

        In this range, the sum of weights is largest: units from the element have the weight 1, other units -1, and
        punctuation half of that. It is computed by Kadane's algorithm, which needs to visit only the units from the
        element, because a document may have thousands of elements.
        """
        by_source = self._by_weak_source if is_weak else self._by_source
        bounds = (bisect.bisect_left(by_source, (source, -1)) for source in (mark.start, mark.end))
        best, span = 0.0, (0, 0)
        total, start, last, last_taken = 0.0, 0, -1, -1
        for number in sorted({number for _, number in by_source[slice(*bounds)]}):
            num_taken = bisect.bisect_left(self._taken, (number + 1, 0))  # ranges that begin before the next unit
            if num_taken and number < self._taken[num_taken - 1][1]:
                continue
            total -= self._totals[number] - self._totals[last + 1]
            if num_taken != last_taken or total < 0:
                total, start = 0.0, number
            total += self._totals[number + 1] - self._totals[number]
            last, last_taken = number, num_taken
            if total > best:
                best, span = total, (self._first + start, self._first + number + 1)
        return span


def _point(mark: Mark, unit_sources: np.ndarray, source: tuple[int, int], positions: np.ndarray) -> int:
    """Returns the position of a mark without text: before the unit that follows it in the source, if possible.

    A mark that is attached only to the preceding unit is placed after that unit instead. The computation is vectorised,
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
    if mark.space_before is False and mark.space_after is not False:
        choices = [*previous_ends[-1:], *next_starts[:1]]
    if choices:
        return int(positions[np.abs(positions - choices[0]).argmin()])
    # The number of units on the wrong side of each position, up to a constant: each unit before the position adds 1 if
    # it comes from after the mark, and -1 otherwise.
    num_misplaced = np.concatenate([[0], np.cumsum(np.where(unit_sources >= mark.start, 1, -1))])
    return int(positions[num_misplaced[positions].argmin()])


def _lost_words(mark: Mark) -> bool:
    """Returns whether nothing is left of an element but tags."""
    return mark.start < mark.end and all(_lost_words(child) for child in mark.children)


def _has_space(left: _Unit | Mark, right: _Unit | Mark) -> bool:
    if isinstance(right, _Unit):
        if isinstance(left, _Unit):
            return bool(right.space)
        if left.space_after is False and right.source == left.end:
            return False
        if is_closing(right.text[0]):
            return bool(right.space)
        return bool(left.space_after or right.space) or is_of_word(right.text[0])
    if isinstance(left, _Unit):
        return not is_opening(left.text[-1]) and right.space_before is not False
    return not (right.space_before is False and left.space_after is False)


def _spell(piece: _Unit, segment: Segment) -> str:
    return "".join(
        segment.entities.get(each) or (html.escape(each, quote=False) if segment.is_escaped else each)
        for each in piece.text
    )
