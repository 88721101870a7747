"""Java's .properties and Apple's .strings: the values."""

import re

from t2t_keras.localization.units import (
    Edit,
    Options,
    Style,
    Unit,
    error_at,
    replacement,
    text_part,
    with_backslashes,
    without_backslashes,
)

# A logical line of .properties: a key, a separator, and a value that continues after a backslash at the end of a line.
_PROPERTY = re.compile(
    r"[ \t\f]*(?:(?P<comment>[#!][^\n]*)|(?P<key>(?:\\.|[^\s:=\\])+)(?:[ \t\f]*[:=])?[ \t\f]*"
    r"(?P<value>(?:\\.|[^\n\\])*)|)(?:\n|\Z)",
    re.DOTALL,
)
_CONTINUATION = re.compile(r"\\\n[ \t\f]*")
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_APPLE = re.compile(
    r"\s+|(?P<comment>/\*.*?\*/|//[^\n]*)|"
    rf"(?P<key>{_QUOTED}|[\w.$-]+)\s*(?:=\s*(?P<value>{_QUOTED})\s*)?;",
    re.DOTALL,
)


def property_units(text: str, options: Options) -> list[Unit]:
    """Returns the units of Java properties.

    Non-ASCII characters are escaped, unless the file itself contains some. If a value has arguments of MessageFormat,
    such as `{0}`, and no single apostrophe, its apostrophes are doubled.
    """
    units, place, note = [], 0, ""
    while place < len(text) and (match := _PROPERTY.match(text, place)):
        if match["comment"]:
            note = match["comment"][1:].strip()
        elif match["value"]:
            units.append(_property(text, *match.span("value"), note))
            note = ""
        place = match.end()
    if place < len(text):
        raise error_at(text, place, "not a line of a .properties file")
    return units


def _property(text: str, start: int, end: int, note: str) -> Unit:
    value = without_backslashes(_CONTINUATION.sub("", text[start:end]))
    is_format = bool(re.search(r"\{\d", value)) and not re.search(r"(?<!')'(?:'')*(?!')", value)
    is_ascii = text.isascii()

    def escape(part: str) -> str:
        part = with_backslashes(part.replace("'", "''") if is_format else part, "")
        if not is_ascii:
            return part
        units = part.encode("utf-16-be")
        codes = [int.from_bytes(units[n : n + 2], "big") for n in range(0, len(units), 2)]
        return "".join(chr(code) if code < 0x80 else f"\\u{code:04X}" for code in codes)

    def edits(translation: str) -> list[Edit]:
        blank = "\\" if translation.startswith(" ") else ""
        return replacement(start, end)(blank + translation)

    source = value.replace("''", "'") if is_format else value
    return Unit(text_part(source), start, edits, replaces=True, note=note, escape=escape)


def apple_units(text: str, options: Options) -> list[Unit]:
    """Returns the units of Apple's .strings.

    Raises:
        InputError: the file has anything but comments and entries; names the line.
    """
    units, place, note = [], 0, ""
    while place < len(text):
        match = _APPLE.match(text, place)
        if not match:
            line = text[place : place + 40].splitlines()[0]
            raise error_at(text, place, f"""expected "key" = "value"; got {line!r}""")
        if match["comment"]:
            note = match["comment"].strip("/* \n")
        elif match["value"]:
            start, end = match.start("value") + 1, match.end("value") - 1
            units.append(
                Unit(
                    text_part(without_backslashes(text[start:end])),
                    start,
                    replacement(start, end),
                    replaces=True,
                    note=note,
                    style=Style(numbers_arguments=True),
                    escape=lambda part: with_backslashes(part, '"'),
                )
            )
            note = ""
        place = match.end()
    return units
