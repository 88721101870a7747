"""Removes protected spans from a text, and puts them back into its translation, each exactly once."""

import bisect
import collections
import functools
import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from t2t_keras.text.markup.placing import AlignedText, aligned_sources, linked_sources
from t2t_keras.text.protection.spans import Span, SpanFinder
from t2t_keras.text.words import is_between_units, is_closing, is_of_word, is_opening, units


class Removed(NamedTuple):
    """One or more spans with only white space between them that were removed from a text together.

    Attributes:
        text: the spans and the white space between them.
        start: position in the text from which they were removed.
        place: position in the remaining text.
        before: white space before the spans.
        after: white space after the spans.
    """

    text: str
    start: int
    place: int
    before: str
    after: str


class Sentence(NamedTuple):
    """A sentence of the remaining text.

    Attributes:
        before: the white space between the previous sentence and this one, in the text and in its translation.
        source: the sentence.
        translation: its translation, with links to the repaired sentence.
    """

    before: str
    source: str
    translation: AlignedText


def remove(text: str, spans: Sequence[Span], finder: SpanFinder) -> tuple[str, list[Removed]]:
    """Removes spans from a text, and replaces unknown punctuation marks outside of all spans.

    Args:
        text: the text.
        spans: protected spans in order; only those with `is_removed` are removed.
        finder: knows the marks to read in place of unknown ones.

    Returns:
        The remaining text without surrounding white space, and the removed spans.
    """
    rest, place = "", 0
    result: list[Removed] = []
    for start, end, is_removed in _groups(text, spans):
        rest += finder.readable(text[place:start])
        place = end
        if not is_removed:
            rest += text[start:end]
            continue
        trimmed = rest.rstrip()
        before, after = rest[len(trimmed) :], text[end : end + len(text[end:]) - len(text[end:].lstrip())]
        place = end + len(after)
        between = _between(trimmed[-1:], before, after, text[place : place + 1])
        result.append(Removed(text[start:end], start, len(trimmed), before, after))
        rest = trimmed + between
    rest += finder.readable(text[place:])
    front = len(rest) - len(rest.lstrip())
    return rest.strip(), [each._replace(place=max(each.place - front, 0)) for each in result]


def _groups(text: str, spans: Sequence[Span]) -> list[tuple[int, int, bool]]:
    """Returns the start and end of spans, and whether they are removed; joins removed ones without text in between."""
    groups: list[tuple[int, int, bool]] = []
    for span in spans:
        last = groups[-1] if groups else None
        if last and span.is_removed and last[2] and not text[last[1] : span.start].strip():
            groups[-1] = (last[0], span.end, True)
        else:
            groups.append((span.start, span.end, span.is_removed))
    return groups


def _between(previous: str, before: str, after: str, following: str) -> str:
    """Returns the white space that replaces spans between two characters, which are "" at the ends of the text."""
    if not previous or not following:
        return ""
    if before and after:
        return before + after if "\n" in before and "\n" in after else after if "\n" in after else before
    if is_closing(following) or is_opening(previous):
        return ""
    return before or after or " "


def repeats(translation: str, spans: Sequence[str]) -> bool:
    """Returns whether a translation contains each of the spans exactly as often as they occur in the sequence."""
    occurrences = collections.Counter(match[0] for match in _occurrences(translation, spans))
    return occurrences == collections.Counter(spans)


def _occurrences(text: str, spans: Sequence[str]) -> list[re.Match[str]]:
    """Finds the spans in a text, except within longer spans or within words."""
    pattern = "|".join(re.escape(span) for span in sorted(set(spans), key=len, reverse=True))
    matches = re.finditer(pattern, text) if pattern else ()
    return [match for match in matches if all(is_between_units(text, place) for place in match.span())]


def without_spans(translation: AlignedText, spans: Sequence[str]) -> AlignedText:
    """Removes spans from a translation that the model must have invented, because it did not read them."""
    text, remains = translation.text, [True] * len(translation.text)
    for match in _occurrences(text, spans):
        remains[match.start() : match.end()] = [False] * len(match[0])
    places = [0, *itertools.accumulate(remains)]  # the new position of each position in the text
    return translation.edited("".join(itertools.compress(text, remains)), places)


class Restored(NamedTuple):
    """A translation with its protected spans.

    Attributes:
        text: the translation.
        ranges: start and end of each element of `removed` in the translation, in the same order.
    """

    text: str
    ranges: tuple[tuple[int, int], ...]


def restored(
    removed: Sequence[Removed], sentences: Sequence[Sentence], intact: Sequence[str] = (), front: int = 0
) -> Restored:
    """Puts the removed spans back into the translation of a text.

    Spans at the beginning, at the end and between sentences stay there. Within a sentence, the word alignment decides.

    Args:
        removed: the spans that were removed from the text.
        sentences: the sentences of the remaining text; none if nothing remains.
        intact: phrases of the translation into which nothing is inserted.
        front: number of characters at the beginning of the translation before which nothing is inserted.
    """
    words = [_Words(sentence) for sentence in sentences]
    ends = _ends(sentences)
    text = "".join(each.before + each.translation.text for each in sentences)
    blocked = _merged(text, intact)
    insertions: dict[int, list[tuple[int, bool]]] = collections.defaultdict(list)
    for number, each in enumerate(removed):
        place, is_followed = _place(each, words, ends)
        place = _outside(max(place, min(front, len(text))), blocked)
        insertions[place].append((number, is_followed))
    result, end = "", 0
    ranges: dict[int, tuple[int, int]] = {}
    for place in sorted(insertions):
        result += text[end:place]
        rest = text[place:].lstrip()
        end = len(text) - len(rest)
        numbers, follows = zip(*insertions[place], strict=True)
        left, right = _spacing(result, text[place:end], rest, [removed[number] for number in numbers], follows[-1])
        result += left
        for number in numbers:
            result += " " * (number != numbers[0])
            ranges[number] = len(result), len(result) + len(removed[number].text)
            result += removed[number].text
        result += right
    return Restored(result + text[end:], tuple(ranges[number] for number in range(len(removed))))


def _ends(sentences: Sequence[Sentence]) -> list[tuple[int, int]]:
    """Returns where each sentence ends in the text and in the translation."""
    ends, source, target = [], 0, 0
    for each in sentences:
        source += len(each.before) + len(each.source)
        target += len(each.before) + len(each.translation.text)
        ends.append((source, target))
    return ends


def _place(each: Removed, words: Sequence["_Words"], ends: Sequence[tuple[int, int]]) -> tuple[int, bool]:
    """Returns the position of removed spans in the translation, and whether they precede the same word there."""
    if not words or each.place <= 0:
        return 0, True
    number = bisect.bisect_left(ends, each.place, key=lambda end: end[0])
    if number == len(ends):
        return ends[-1][1], False
    sentence, (source_end, target_end) = words[number].sentence, ends[number]
    start, text = source_end - len(sentence.source), sentence.translation.text
    if each.place == source_end:
        is_last_word = any(map(str.isalnum, each.text)) and is_of_word(sentence.source[-1])
        return target_end - (_final_marks(text) if is_last_word else 0), False
    if each.place <= start:
        return ends[number - 1][1] if number else 0, False
    gap, is_followed = words[number].gap(each, each.place - start)
    return target_end - len(text) + gap, is_followed


class _Words:
    """The units of a sentence and of its translation, and their alignment, computed when they are first needed."""

    def __init__(self, sentence: Sentence) -> None:
        self.sentence = sentence

    @functools.cached_property
    def _source_ends(self) -> list[int]:
        return [end for _, end in units(self.sentence.source)]

    @functools.cached_property
    def _targets(self) -> list[tuple[int, int]]:
        return units(self.sentence.translation.text)

    @functools.cached_property
    def _sources(self) -> list[int]:
        return source_units(self.sentence, self._targets)

    @functools.cached_property
    def _after_last(self) -> dict[int, int]:
        """The gap after the last unit that is aligned with each source unit."""
        return {source: number + 1 for number, source in enumerate(self._sources)}

    @functools.cached_property
    def _first(self) -> dict[int, int]:
        """The first unit that is aligned with each source unit."""
        return {source: number for number, source in reversed(list(enumerate(self._sources)))}

    def gap(self, each: Removed, place: int) -> tuple[int, bool]:
        """Returns the position of removed spans in the translation, and whether they precede the same word there.

        Args:
            each: the spans.
            place: their position in the source of the sentence.
        """
        text, source = self.sentence.translation.text, self.sentence.source
        num_marks = _final_marks(text)
        if _final_marks(source) >= len(source) - place:  # only marks follow the spans
            return len(text) - num_marks, True
        number = bisect.bisect_right(self._source_ends, place)
        before, after = self._after_last.get(number - 1) if number else None, self._first.get(number)
        # Without a space, the spans belong to the word before them.
        order = (before, after) if not each.before and each.after else (after, before)
        choices = [choice for choice in order if choice is not None]
        if not choices:
            # The number of words on the wrong side of each gap, up to a constant.
            steps = [0 if other < 0 else 1 if other >= number else -1 for other in self._sources]
            misplaced = [0, *itertools.accumulate(steps)]
            choices = [misplaced.index(min(misplaced))]
        last = bisect.bisect_left(self._targets, len(text) - num_marks, key=lambda target: target[0])
        gap = min(choices[0], last)
        is_followed = gap < len(self._sources) and self._sources[gap] == number
        return self._targets[gap - 1][1] if gap else 0, is_followed


def _final_marks(text: str) -> int:
    """Returns the number of characters after the last word of a text, up to its end; 0 if it has no word."""
    rest = len(text)
    while rest and not is_of_word(text[rest - 1]) and not text[rest - 1].isspace():
        rest -= 1
    return len(text) - rest if rest else 0


def source_units(sentence: Sentence, targets: Sequence[tuple[int, int]]) -> list[int]:
    """Returns the index of the source unit that each unit of a translated sentence is aligned with, or -1."""
    return aligned_sources(sentence.translation.links, targets, _repaired_units(sentence))


def weak_source_units(sentence: Sentence, targets: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Returns the indices of the source units with weak links to each unit of a translated sentence."""
    return list(map(list, linked_sources(sentence.translation.weak_links, targets, _repaired_units(sentence))))


def _repaired_units(sentence: Sentence) -> list[tuple[int, int]]:
    """Returns the units of the repaired source, to which links refer; they are the same as those of the source."""
    return units(" ".join(sentence.source.split()))


def _merged(text: str, phrases: Sequence[str]) -> list[tuple[int, int]]:
    """Returns the ranges of a text that phrases occupy, in order; overlapping ones are joined."""
    matches = (match for phrase in set(phrases) if phrase for match in re.finditer(re.escape(phrase), text))
    ranges: list[tuple[int, int]] = []
    for start, end in sorted(match.span() for match in matches):
        if ranges and start < ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], max(end, ranges[-1][1]))
        else:
            ranges.append((start, end))
    return ranges


def _outside(place: int, ranges: Sequence[tuple[int, int]]) -> int:
    """Returns a position or, if it is within one of the ranges, the end of this range."""
    number = bisect.bisect_right(ranges, place, key=lambda each: each[1])
    return ranges[number][1] if number < len(ranges) and ranges[number][0] < place else place


def _spacing(front: str, gap: str, rest: str, pieces: Sequence[Removed], is_followed: bool) -> tuple[str, str]:
    """Returns the white space before and after spans that are inserted between two parts of a translation.

    Args:
        front: the translation before the spans.
        gap: the white space that the spans replace.
        rest: the translation after them.
        pieces: the spans.
        is_followed: whether the spans precede the same word as in the source.
    """
    last = pieces[-1]
    first = pieces[0]
    left = (first.before or " " * (not first.start)) if front and not is_opening(front[-1]) else ""
    if not front or not rest:
        return left, last.after if rest else ""
    if last.after:
        return left, "" if is_closing(rest[0]) and not gap else last.after
    return left, " " if is_of_word(rest[0]) and not is_followed else ""


def diagonal(source: str, translation: str) -> AlignedText:
    """Aligns the words of a translation with those of its source in order, for models that offer no attention."""
    sources, targets = units(source), units(translation)
    links = [
        (*target, *sources[number * len(sources) // len(targets)]) for number, target in enumerate(targets) if sources
    ]
    return AlignedText(translation, tuple(links))
