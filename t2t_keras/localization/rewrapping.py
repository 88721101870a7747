"""Finds the line breaks within sentences, and wraps the translations of such sentences again."""

import bisect
import itertools
import math
import re
from typing import NamedTuple

from t2t_keras.localization.units import Joins

_SHORTEST_WRAPPED = 40  # characters of a line that may continue in the next one
_BREAK = re.compile(r"(?<![ \t])[ \t]*\n\s*")
_NEXT_SPEAKER = re.compile(r"[-–—♪#>]")
# A stand-in of `unit_text`.
_TAG = re.compile(r"</?\w+ [\U00100000-\U0010fffd]>")

_BLANK = re.compile(r" (?![\U00100000-\U0010fffd])")  # not that of a tag


class Break(NamedTuple):
    """Line breaks with the blanks around them, from `start` to `end`."""

    start: int
    end: int
    is_within_sentence: bool


def breaks(text: str, joins: Joins) -> list[Break]:
    """Returns the line breaks of a text; see `Style.joins`."""
    result, line_start = [], 0
    for match in _BREAK.finditer(text):
        before = _TAG.sub("", text[line_start : match.start()]).strip()
        after = _TAG.sub("", text[match.end() : match.end() + _SHORTEST_WRAPPED]).lstrip()
        is_within = bool(before and after) and match[0].count("\n") == 1
        if joins == "all":
            is_within = is_within and not _NEXT_SPEAKER.match(after)
        elif is_within:
            is_within = len(before) >= _SHORTEST_WRAPPED and after[0].islower() and before[-1] not in ".!?:;…"
        result.append(Break(*match.span(), is_within))
        line_start = match.end()
    return result


def join_lines(text: str) -> str:
    """Joins the lines of a text."""
    return _BREAK.sub(" ", text) if text.strip() else text


def rewrapped(text: str, source: str, limit: int) -> str:
    """Breaks a translation into lines as its source is.

    There are as many lines as in the source, with the same shares of the text. If a line would then be longer than both
    the limit and the longest line of the source, there are more lines, all of about the same length.

    Args:
        text: the translation, on one line.
        source: the source, whose line breaks are all within sentences.
        limit: maximum length of a line; 0 means that of the source.
    """
    separators = [match[0] for match in _BREAK.finditer(source)]
    places = [match.start() for match in _BLANK.finditer(text)]
    if not separators or not places:
        return text
    widths = [_width(line) for line in _BREAK.split(source)]
    total, longest = _width(text), max(limit, *widths)
    ends = [end / widths_total for end, widths_total in _shares(widths)]
    if total * max(b - a for a, b in itertools.pairwise([0.0, *ends])) > longest:
        count = max(len(widths), math.ceil(total / longest))
        ends = [number / count for number in range(1, count + 1)]
    lines, start = [], 0
    blanks = [_width(text[:place]) for place in places]
    for end in ends[:-1]:
        after = bisect.bisect_left(blanks, end * total)
        nearest = min(range(max(after - 1, 0), min(after + 1, len(blanks))), key=lambda n: abs(blanks[n] - end * total))
        if places[nearest] > start:
            lines.append(text[start : places[nearest]])
            start = places[nearest] + 1
    pieces = [*lines, text[start:]]
    joints = [*separators, *[separators[-1]] * len(pieces)]
    return "".join(piece + joint for piece, joint in zip(pieces, [*joints[: len(pieces) - 1], ""], strict=True))


def _shares(widths: list[int]) -> list[tuple[int, int]]:
    """Returns the position at which each line ends, without its blank, and the length of all lines."""
    ends = [end + number for number, end in enumerate(itertools.accumulate(widths))]
    return [(end, max(ends[-1], 1)) for end in ends]


def _width(text: str) -> int:
    return len(_TAG.sub("", text))
