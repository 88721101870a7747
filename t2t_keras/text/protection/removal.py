"""Removes protected spans from a text, and puts them back into its translation, each exactly once."""

import collections
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from t2t_keras.text.markup.placing import AlignedText
from t2t_keras.text.protection.spans import Span, SpanFinder
from t2t_keras.text.words import is_apart, is_of_word, units


class Removed(NamedTuple):
    """One or more spans with only white space between them that were removed from a text together.

    Attributes:
        text: the spans and the white space between them.
        start: position in the text from which they were removed.
        place: position in the remaining text.
        before: white space in front of the spans.
        after: white space behind the spans.
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
        spans: protected spans in order, of which those that are marked as removed are removed.
        finder: knows the marks to read in place of unknown ones.

    Returns:
        The remaining text without surrounding white space, and what was removed.
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
    if _closes(following) or _opens(previous):
        return ""
    return before or after or " "


def _closes(character: str) -> bool:
    return unicodedata.category(character) in ("Po", "Pe", "Pf")


def _opens(character: str) -> bool:
    return unicodedata.category(character) in ("Ps", "Pi")


def repeats(translation: str, spans: Sequence[str]) -> bool:
    """Returns whether a translation contains each of the spans exactly as often as they occur in the sequence."""
    occurrences = collections.Counter(match[0] for match in _occurrences(translation, spans))
    return occurrences == collections.Counter(spans)


def _occurrences(text: str, spans: Sequence[str]) -> list[re.Match[str]]:
    """Finds the spans in a text, except within longer spans or within words."""
    pattern = "|".join(re.escape(span) for span in sorted(set(spans), key=len, reverse=True))
    matches = re.finditer(pattern, text) if pattern else ()
    return [match for match in matches if is_apart(text, match.start()) and is_apart(text, match.end())]


def without_spans(translation: AlignedText, spans: Sequence[str]) -> AlignedText:
    """Removes spans from a translation that the model must have invented, because it did not read them."""
    text, links = translation.text, list(translation.links)
    for match in reversed(_occurrences(text, spans)):
        start, end = match.span()
        text = text[:start] + text[end:]
        moved = [
            (min(a, start) if a < end else a - end + start, min(b, start) if b < end else b - end + start, *rest)
            for a, b, *rest in links
        ]
        links = [(a, b, source_start, source_end) for a, b, source_start, source_end in moved if a < b]
    return AlignedText(text, tuple(links))


class Restored(NamedTuple):
    """A translation with its protected spans.

    Attributes:
        text: the translation.
        ranges: start and end of everything that was put back, in the order in which it was removed.
    """

    text: str
    ranges: tuple[tuple[int, int], ...]


def restored(
    removed: Sequence[Removed], sentences: Sequence[Sentence], intact: Sequence[str] = (), front: int = 0
) -> Restored:
    """Puts the removed spans back into the translation of a text.

    Spans at the beginning, at the end and between sentences stay there. Within a sentence, the word alignment decides.

    Args:
        removed: what was removed from the text.
        sentences: the sentences of the remaining text; none if nothing remains.
        intact: phrases of the translation into which nothing is inserted.
        front: number of characters at the beginning of the translation before which nothing is inserted.
    """
    ends = _ends(sentences)
    text = "".join(each.before + each.translation.text for each in sentences)
    insertions: dict[int, list[tuple[int, bool]]] = collections.defaultdict(list)
    for number, each in enumerate(removed):
        place, is_followed = _place(each, sentences, ends)
        insertions[_outside(text, max(place, min(front, len(text))), intact)].append((number, is_followed))
    result, end = "", 0
    ranges: dict[int, tuple[int, int]] = {}
    for place in sorted(insertions):
        result += text[end:place]
        rest = text[place:].lstrip()
        end = len(text) - len(rest)
        numbers, follows = zip(*insertions[place], strict=True)
        left, right = _blanks(result, text[place:end], rest, [removed[number] for number in numbers], follows[-1])
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


def _place(each: Removed, sentences: Sequence[Sentence], ends: Sequence[tuple[int, int]]) -> tuple[int, bool]:
    """Returns the position of removed spans in the translation, and whether the next word is that of the source."""
    if not sentences or each.place <= 0:
        return 0, True
    for sentence, (source_end, target_end) in zip(sentences, ends, strict=True):
        if each.place < source_end:
            start = source_end - len(sentence.source)
            if each.place <= start:
                break
            gap, is_followed = _gap(each, sentence, each.place - start)
            return target_end - len(sentence.translation.text) + gap, is_followed
        if each.place == source_end:
            marks = _final_marks(sentence.translation.text)
            is_last_word = any(map(str.isalnum, each.text)) and is_of_word(sentence.source[-1])
            return target_end - marks if is_last_word else target_end, False
    return next((target for source, target in reversed(ends) if source <= each.place), 0), False


def _gap(each: Removed, sentence: Sentence, place: int) -> tuple[int, bool]:
    """Returns the end of the word in a translated sentence after which removed spans go, as `_place` does."""
    text = sentence.translation.text
    if _final_marks(sentence.source) >= len(sentence.source) - place:  # only marks follow the spans
        return len(text) - _final_marks(text), True
    number = sum(end <= place for _, end in units(sentence.source))
    targets = units(text)
    sources = source_units(sentence, targets)
    before = [index + 1 for index, source in enumerate(sources) if source == number - 1]
    after = [index for index, source in enumerate(sources) if source == number]
    choices = [*after[:1], *before[-1:]]
    if not each.before and each.after:  # the spans belong to the word in front of them
        choices = [*before[-1:], *after[:1]]
    if not choices:
        misplaced = [
            sum((source >= number) == (index < gap) for index, source in enumerate(sources) if source >= 0)
            for gap in range(len(targets) + 1)
        ]
        choices = [misplaced.index(min(misplaced))]
    num_marks = sum(start >= len(text) - _final_marks(text) for start, _ in targets)
    gap = min(choices[0], len(targets) - num_marks)
    return targets[gap - 1][1] if gap else 0, gap < len(sources) and sources[gap] == number


def _final_marks(text: str) -> int:
    """Returns the number of characters after the last word of a text, up to its end; 0 if it has no word."""
    rest = len(text)
    while rest and not is_of_word(text[rest - 1]) and not text[rest - 1].isspace():
        rest -= 1
    return len(text) - rest if rest else 0


def source_units(sentence: Sentence, targets: Sequence[tuple[int, int]]) -> list[int]:
    """Returns the index of the source unit that each unit of a translated sentence is aligned with, or -1."""
    # The links refer to the repaired sentence, which has the same units.
    sources = units(" ".join(sentence.source.split()))
    weights: list[collections.Counter[int]] = [collections.Counter() for _ in targets]
    for start, end, source_start, source_end in sentence.translation.links:
        overlaps = [
            (number, min(end, last) - max(start, first))
            for number, (first, last) in enumerate(targets)
            if first < end and start < last
        ]
        for source, (first, last) in enumerate(sources):
            if first < source_end and source_start < last:
                for number, overlap in overlaps:
                    weights[number][source] += overlap * (min(source_end, last) - max(source_start, first))
    return [max(each.items(), key=lambda item: (item[1], -item[0]), default=(-1, 0))[0] for each in weights]


def _outside(text: str, place: int, phrases: Sequence[str]) -> int:
    """Returns the position, or the end of the occurrence of a phrase that contains it."""
    for phrase in phrases:
        for match in re.finditer(re.escape(phrase), text) if phrase else ():
            if match.start() < place < match.end():
                place = match.end()
    return place


def _blanks(front: str, gap: str, rest: str, pieces: Sequence[Removed], is_followed: bool) -> tuple[str, str]:
    """Returns the white space before and after spans that are inserted between two parts of a translation.

    Args:
        front: the translation before the spans.
        gap: the white space that the spans replace.
        rest: the translation after them.
        pieces: the spans.
        is_followed: whether the word that follows is that of the source.
    """
    last = pieces[-1]
    first = pieces[0]
    left = (first.before or " " * (not first.start)) if front and not _opens(front[-1]) else ""
    if not front or not rest:
        return left, last.after if rest else ""
    if last.after:
        return left, "" if _closes(rest[0]) and not gap else last.after
    return left, " " if is_of_word(rest[0]) and not is_followed else ""


def diagonal(source: str, translation: str) -> AlignedText:
    """Aligns the words of a translation with those of its source in order, for models that offer no attention."""
    sources, targets = units(source), units(translation)
    links = [
        (*target, *sources[number * len(sources) // len(targets)]) for number, target in enumerate(targets) if sources
    ]
    return AlignedText(translation, tuple(links))
