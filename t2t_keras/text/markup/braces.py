"""Finds placeholders in braces and the messages of ICU's MessageFormat, by counting braces."""

import dataclasses
import re
from collections.abc import Iterator

_BRACE_OR_QUOTE = re.compile("[{}']")
# An argument with a type, such as "{n, plural, ...}" or "{total, number}", shows that a text is an ICU message.
_TYPED = re.compile(r"\s*[\w.-]+\s*,\s*(?:plural|select|selectordinal|number|date|time|choice|spellout|ordinal)\s*[,}]")
_COMPLEX = re.compile(r"\s*[\w.-]+\s*,\s*(plural|selectordinal|select)\s*,(?:\s*offset\s*:\s*\d+)?")
_STYLED = re.compile(r"\s*[\w.-]+\s*,\s*(?:number|date|time|spellout|ordinal)\s*,")
_SELECTOR = re.compile(r"\s*(?:=\d+|[^\s{}'#,=]+)\s*(?=\{)")
_SPACES = re.compile(r"\s*")
_QUOTED = re.compile("(?:[^']|'')*+'")  # the rest of a quotation
# A brace in prose, which neither begins nor ends a placeholder.
_PROSE = re.compile(r"\{(?=\s|$)(?!\s*[\w.-]+\s*,)|(?:(?<=[\s:;(=-])|^)\}")


@dataclasses.dataclass(frozen=True)
class SubMessages:
    """An ICU argument with sub-messages, such as "{n, plural, one {# dog} other {# dogs}}".

    Attributes:
        ranges: the start and end of each sub-message.
        has_numbers: whether "#" stands for a number in the sub-messages.
    """

    ranges: tuple[tuple[int, int], ...]
    has_numbers: bool


class Braces:
    """The braces and the quotes of a text.

    A text with a typed argument is an ICU message, in which an apostrophe before a brace begins a quotation. In other
    texts, it does so only if it does not follow a letter or a digit and the quotation ends, or if the braces are
    balanced only with quotations.

    Args:
        text: the text.

    Attributes:
        is_message: whether the text is an ICU message.
        is_balanced: whether each brace has a partner, except for braces in prose.
        groups: the end of each group in braces, by its start.
        quotes: the end of each quotation, by its start.
        singles: positions of braces in prose.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        groups, quotes, unmatched = _matched(text, is_message=True)
        self.is_message = not unmatched and any(_TYPED.match(text, start + 1) for start in groups)
        if not self.is_message:
            plain = _matched(text, is_message=False)
            groups, quotes, unmatched = plain if not plain[2] or unmatched else (groups, quotes, unmatched)
        self.groups, self.quotes = groups, quotes
        self.singles = {place for place in unmatched if _PROSE.match(text, place)}
        self.is_balanced = len(self.singles) == len(unmatched)

    def sub_messages(self, start: int) -> SubMessages | None:
        """Returns the sub-messages of the group at a position; None if it is not an ICU argument with sub-messages."""
        match = _COMPLEX.match(self.text, start + 1)
        if not self.is_message or not match:
            return None
        place, end, ranges = match.end(), self.groups[start] - 1, []
        while selector := _SELECTOR.match(self.text, place, end):
            first = selector.end()
            place = self.groups[first]
            ranges.append((first + 1, place - 1))
        rest = _SPACES.match(self.text, place)
        if not ranges or rest is None or rest.end() != end:
            return None
        return SubMessages(tuple(ranges), match[1] != "select")


def spans(text: str) -> Iterator[tuple[int, int]]:
    """Yields the start and end of the outermost groups in braces."""
    groups, place = _matched(text, is_message=False)[0], 0
    for start in sorted(groups):
        if start >= place:
            place = groups[start]
            yield start, place


def _matched(text: str, is_message: bool) -> tuple[dict[int, int], dict[int, int], list[int]]:
    """Returns the ends of groups and of quotations by their starts, and the positions of braces without a partner."""
    groups: dict[int, int] = {}
    quotes: dict[int, int] = {}
    unmatched: list[int] = []
    open_places: list[int] = []
    styled: set[int] = set()  # starts of arguments with a style
    place = 0
    while match := _BRACE_OR_QUOTE.search(text, place):
        start, place = match.start(), match.end()
        if match[0] == "{":
            open_places.append(start)
            if is_message and _STYLED.match(text, place):
                styled.add(start)
        elif match[0] == "}":
            if open_places:
                groups[open_places.pop()] = place
            else:
                unmatched.append(start)
        elif open_places and open_places[-1] in styled:
            place = text.find("'", place) + 1 or place  # the style of an argument, as in "{d, date, yyyy 'o''clock'}"
        elif text.startswith("'", place):
            place += 1  # two apostrophes stand for one
        elif text[place : place + 1] in ("{", "}") and (is_message or not text[max(start - 1, 0) : start].isalnum()):
            end = _end_of_quote(text, place + 1)
            if end or is_message:
                place = quotes[start] = end or len(text)
    return groups, quotes, unmatched + open_places


def _end_of_quote(text: str, place: int) -> int | None:
    """Returns the position after the next apostrophe that is not doubled; None if there is none."""
    match = _QUOTED.match(text, place)
    return match.end() if match else None
