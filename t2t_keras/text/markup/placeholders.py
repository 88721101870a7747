"""Separates the placeholders of a text from the text to translate."""

import bisect
import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Sequence

from t2t_keras.text.markup.braces import Braces, spans
from t2t_keras.text.markup.reading import Part

# The rest of a conversion of printf, such as the "5.2f" of "%5.2f".
AFTER_PERCENT = r"(?:[#0+]|-(?=[\d*.]))*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|z|j|t|L)?[diouxXeEfFgGcrsaAp@]"
# "%" is a percent sign after a digit, as in the German "10%ige", and before a hyphen without a width, as in the Swedish
# "3 %-enheter".
CONVERSION = re.compile(rf"%\(\w+\){AFTER_PERCENT}|(?<!\d)%(?:\d+\$)?{AFTER_PERCENT}|%%|<%[^<>]*%>")
_START = re.compile("[{}'#]")
_PREFIXES = "$%#"  # of groups in braces, as in "${name}"
_TAG = "\ud801"  # stands for a part other than text; a lone surrogate, which no valid text contains
# The deepest nesting of sub-messages. Deeper arguments stay unchanged.
_DEEPEST = 20

# A function of the parts of a sub-message and whether they belong to an ICU message, which returns a marker.
AddSubMessage = Callable[[Sequence[Part], bool], str]


def placeholder_spans(text: str) -> list[tuple[int, int]]:
    """Returns the start and end of each placeholder in a text without markup, in order."""
    groups = [(start - (text[start - 1 : start] in [*"$%"]), end) for start, end in spans(text)]
    conversions = [match.span() for match in CONVERSION.finditer(text)]
    result: list[tuple[int, int]] = []
    for start, end in sorted(groups + conversions):
        if not result or start >= result[-1][1]:
            result.append((start, end))
    return result


@dataclasses.dataclass(frozen=True)
class Protected:
    """A run of parts, whose placeholders in braces are separate parts.

    Attributes:
        parts: the parts; each placeholder is "whole".
        is_message: whether two apostrophes stand for one, as in ICU messages.
    """

    parts: list[Part]
    is_message: bool = False


def protect(run: Sequence[Part], add_sub_message: AddSubMessage) -> Protected | None:
    """Separates the placeholders in braces from the text of a run of parts.

    Args:
        run: the parts.
        add_sub_message: stores the parts of a sub-message of a placeholder.

    Returns:
        The parts with placeholders; None if the braces are not balanced, so that the run must stay unchanged.
    """
    if not any("{" in part.raw or "}" in part.raw for part in run if part.kind == "text"):
        return Protected(list(run))
    return _Run(run, add_sub_message).protected()


class _Run:
    """A run of parts as one text, in which each part other than text is one character."""

    def __init__(self, run: Sequence[Part], add_sub_message: AddSubMessage) -> None:
        self._run, self._add_sub_message = run, add_sub_message
        texts = [part.raw if part.kind == "text" else _TAG for part in run]
        self._starts = [0, *itertools.accumulate(map(len, texts))]
        self._flat = "".join(texts)
        self._braces = Braces(self._flat)
        self._breaks = [match.start() for match in re.finditer("\n", self._flat)]

    def protected(self) -> Protected | None:
        braces = self._braces
        if not braces.is_balanced:
            return None
        is_message = braces.is_message or bool(braces.quotes) or "''" in self._flat
        return Protected(list(self._parts(0, len(self._flat), is_message=is_message)), is_message)

    def _parts(
        self, start: int, end: int, *, is_message: bool, has_numbers: bool = False, depth: int = 0
    ) -> Iterator[Part]:
        """Yields the parts of a range; with `has_numbers`, "#" is a placeholder."""
        begin = place = start
        for match in _START.finditer(self._flat, start, end):
            first = match.start()
            if first < place:
                continue
            last = self._end(first, end, has_numbers)
            if last is None:
                continue
            place = last
            if (
                match[0] == "{"
                and first > begin
                and self._flat[first - 1] in (_PREFIXES[:2] if has_numbers else _PREFIXES)
            ):
                first -= 1
            yield from self._slice(begin, first)
            raw = self._raw(match.start(), place, is_message, depth)
            prefix = self._flat[first : match.start()]
            yield Part("whole", prefix + raw, line=self._line(first))
            begin = place
        yield from self._slice(begin, end)

    def _end(self, place: int, most: int, has_numbers: bool) -> int | None:
        """Returns the end of the placeholder at a position; None if there is none."""
        braces, character = self._braces, self._flat[place]
        if place in braces.quotes:
            return braces.quotes[place]
        if character == "{" and place in braces.groups:
            return braces.groups[place]
        if has_numbers and character == "'" and self._flat.startswith("#", place + 1):
            closing = self._flat.find("'", place + 2, most)
            return closing + 1 if closing >= 0 else None
        return place + 1 if place in braces.singles or (has_numbers and character == "#") else None

    def _raw(self, start: int, end: int, is_message: bool, depth: int) -> str:
        """Returns the raw text of a placeholder, with markers for its sub-messages."""
        is_group = self._flat[start] == "{" and start in self._braces.groups and depth < _DEEPEST
        messages = self._braces.sub_messages(start) if is_group else None
        if messages is None:
            return self._raw_slice(start, end)
        raw, place = "", start
        for first, last in messages.ranges:
            raw += self._raw_slice(place, first)
            options = {"is_message": is_message, "has_numbers": messages.has_numbers}
            raw += self._add_sub_message(list(self._parts(first, last, **options, depth=depth + 1)), is_message)
            place = last
        return raw + self._raw_slice(place, end)

    def _raw_slice(self, start: int, end: int) -> str:
        return "".join(part.raw for part in self._slice(start, end))

    def _slice(self, start: int, end: int) -> Iterator[Part]:
        """Yields the parts of a range, with text cut at its ends."""
        number = max(bisect.bisect_right(self._starts, start) - 1, 0)
        while number < len(self._run) and self._starts[number] < end:
            part, first = self._run[number], self._starts[number]
            if part.kind == "text":
                a, b = max(start, first), min(end, self._starts[number + 1])
                if a < b:
                    yield dataclasses.replace(part, raw=self._flat[a:b], line=self._line(a))
            elif start <= first:
                yield part
            number += 1

    def _line(self, place: int) -> int:
        """Returns the line of the document at a position of the text."""
        number = min(bisect.bisect_right(self._starts, place) - 1, len(self._run) - 1)
        before = bisect.bisect_left(self._breaks, place) - bisect.bisect_left(self._breaks, self._starts[number])
        return self._run[number].line + before
