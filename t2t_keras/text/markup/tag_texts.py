"""Finds the attributes of tags that hold text, such as the `alt` of an image."""

import dataclasses
import re
from collections.abc import Collection

from t2t_keras.text.markup.reading import Part
from t2t_keras.text.markup.segments import Dialect, segments
from t2t_keras.text.markup.slots import Slot, Slots

_NAME = re.compile(r"<[^\s/>]+")
_ATTRIBUTE = re.compile(
    r"""(?:[\s/]+|(?<=["']))(?P<name>[^\s/>=][^\s/>=]*)"""
    r"""(?:\s*=\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<unquoted>[^\s>"'][^\s>]*)))?"""
)


def with_slots(part: Part, names: Collection[str], slots: Slots) -> Part:
    """Returns a tag in which markers stand for the values of its attributes with text.

    Args:
        part: the tag.
        names: lowercase names of the attributes.
        slots: takes the texts.
    """
    start = _NAME.match(part.raw)
    raw, place, line = "", start.end() if start else len(part.raw), part.line
    done = 0
    while match := _ATTRIBUTE.match(part.raw, place):
        place = match.end()
        kind = match.lastgroup
        if kind in (None, "name") or match["name"].lower() not in names:
            continue
        first, last = match.span(str(kind))
        value = part.raw[first:last]
        text = Part("text", value, line=line + part.raw.count("\n", 0, first))
        pieces = segments([text], slots, Dialect(quote="'" if kind == "single" else '"'))
        raw += part.raw[done:first] + slots.add(Slot(pieces, value if kind == "unquoted" else None))
        done = last
    return dataclasses.replace(part, raw=raw + part.raw[done:])
