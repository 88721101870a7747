"""gettext catalogues (.po and .pot): translations are marked as fuzzy."""

import dataclasses
import re
from collections.abc import Sequence

from t2t_keras.localization.message_arguments import ARGUMENT
from t2t_keras.localization.units import (
    Edit,
    Options,
    Style,
    Unit,
    error_at,
    text_part,
    with_backslashes,
    without_backslashes,
)
from t2t_keras.text.plural_forms import NUMBERS, PluralRule, plural_rule

_LINE = re.compile(
    r"(?P<comment>#.*)|(?P<keyword>msgctxt|msgid_plural|msgid|msgstr)(?:\[(?P<form>\d+)\])?\s*(?P<string>\".*\")|"
    r"(?P<more>\".*\")|"
)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_CHARSET = re.compile(rb"Content-Type:[^\n]*charset=([\w.:-]+)")
_NUMBERS_ARGUMENTS = re.compile(r"\b(?:c|objc|php|java-printf|perl|gcc-internal|qt|kde|lua)-format")
_PLACEHOLDER = re.compile(rf"%\d|%\(\w+\)|\{{[^{{}}]*\}}|{ARGUMENT.pattern}")
_WIDTH = 79  # of gettext's lines


@dataclasses.dataclass
class _String:
    """A keyword with its text, from `start` to `end`, without the last line break."""

    start: int
    end: int
    text: str


@dataclasses.dataclass
class _Entry:
    """An entry: its comments as (position, text), and its strings by keyword, such as "msgid" and "msgstr[0]"."""

    comments: list[tuple[int, str]] = dataclasses.field(default_factory=list)
    strings: dict[str, _String] = dataclasses.field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        return any(keyword.startswith("msgstr") for keyword in self.strings)

    @property
    def flags(self) -> str:
        return "".join(comment for _, comment in self.comments if comment.startswith("#,"))


def po_charset(content: bytes) -> str | None:
    """Returns the character encoding that the header of a catalogue names, or None."""
    match = _CHARSET.search(content)
    name = match[1].decode() if match else "CHARSET"
    return None if name == "CHARSET" else name  # the placeholder in a template


def po_units(text: str, options: Options) -> list[Unit]:
    """Returns the units of a catalogue, without its header and obsolete entries; one unit per plural form.

    Raises:
        InputError: a line is not valid; names it.
    """
    entries = _entries(text)
    header = next((each.strings["msgstr"].text for each in entries if _is_header(each)), "")
    rule = plural_rule(header)
    marker = re.search(r"(?m)^X-Accelerator-Marker:\s*(\S)", header)
    is_wrapped = not any(len(line) > _WIDTH + 1 for line in text.split("\n") if line.startswith(('"', "msg")))
    units = []
    for entry in entries:
        if _is_header(entry):
            continue
        style = Style(
            accelerators=marker[1] if marker else "&_",
            numbers_arguments=bool(_NUMBERS_ARGUMENTS.search(entry.flags)) and "no-c-format" not in entry.flags,
        )
        if "msgid_plural" in entry.strings:
            singular, plural = (entry.strings[keyword].text for keyword in ("msgid", "msgid_plural"))
            num_forms = rule.num_forms if rule else sum(keyword.startswith("msgstr") for keyword in entry.strings)
            for form in range(num_forms):
                is_singular = num_forms > 1 and _is_singular(form, rule, singular, plural)
                source = singular if is_singular else plural
                units.append(_unit(entry, f"msgstr[{form}]", source, style, is_wrapped))
        else:
            units.append(_unit(entry, "msgstr", entry.strings["msgid"].text, style, is_wrapped))
    return units


def _is_header(entry: _Entry) -> bool:
    return not entry.strings["msgid"].text and "msgctxt" not in entry.strings and "msgstr" in entry.strings


def _is_singular(form: int, rule: PluralRule | None, singular: str, plural: str) -> bool:
    """Returns whether one of several plural forms is the translation of the singular.

    If the form also applies to other numbers than 1, the singular must have the placeholders of the plural.
    """
    if rule is None:
        return form == 0
    if rule.form(1) != form:
        return False
    others = any(rule.form(number) == form for number in NUMBERS if number != 1)
    return not others or _PLACEHOLDER.findall(singular) == _PLACEHOLDER.findall(plural)


def _entries(text: str) -> list[_Entry]:
    """Returns the entries of a catalogue in order."""
    entries, place = [_Entry()], 0
    string: _String | None = None
    for line in text.split("\n"):
        stripped = line.strip()
        match = _LINE.fullmatch(stripped)
        if not match:
            raise error_at(text, place, f"not a line of a .po file: {stripped[:40]!r}")
        if stripped and entries[-1].is_complete and not match["more"]:
            is_next = match["comment"] or match["keyword"] in ("msgctxt", "msgid")
            if is_next:
                entries.append(_Entry())
        end = place + len(line.rstrip())
        quoted = _STRING.fullmatch(match["string"] or match["more"] or '""')
        if not quoted or (match["more"] and not string):
            raise error_at(text, place, f"not a quoted string after a keyword: {stripped[:40]!r}")
        if stripped.startswith("#~"):
            entries[-1].comments.clear()  # those of an obsolete entry
        elif match["comment"]:
            entries[-1].comments.append((place, stripped))
        elif match["keyword"]:
            string = _String(place, end, without_backslashes(quoted[1]))
            keyword = match["keyword"] + (f"[{match['form']}]" if match["form"] else "")
            if keyword in entries[-1].strings:
                raise error_at(text, place, f"a second {keyword} in the same entry")
            entries[-1].strings[keyword] = string
        elif match["more"] and string:
            string.text, string.end = string.text + without_backslashes(quoted[1]), end
        place += len(line) + 1
    entries = [entry for entry in entries if entry.strings]
    for entry in entries:
        if "msgid" not in entry.strings or not entry.is_complete:
            first = next(iter(entry.strings.values()))
            raise error_at(text, first.start, "an entry needs msgid and msgstr")
        is_plural = "msgid_plural" in entry.strings
        if any((keyword == "msgstr") == is_plural for keyword in entry.strings if keyword.startswith("msgstr")):
            expected = "msgid_plural needs msgstr[0]" if is_plural else "msgstr[0] needs msgid_plural"
            raise error_at(text, entry.strings["msgid"].start, expected)
    return entries


def _unit(entry: _Entry, keyword: str, source: str, style: Style, is_wrapped: bool) -> Unit:
    existing = entry.strings.get(keyword)
    last = max(string.end for string in entry.strings.values())

    def edits(translation: str) -> list[Edit]:
        new = _spelled(keyword, translation, is_wrapped)
        place = Edit(existing.start, existing.end, new) if existing else Edit(last, last, f"\n{new}")
        return [*_fuzzy_edits(entry), place]

    return Unit(
        text_part(source),
        entry.strings["msgid"].start,
        edits,
        existing.text if existing else "",
        bool(existing and existing.text),
        note="\n".join(comment[2:].strip() for _, comment in entry.comments if not comment.startswith(("#:", "#,"))),
        style=style,
    )


def _fuzzy_edits(entry: _Entry) -> list[Edit]:
    """Returns the edit that flags an entry as fuzzy, the same for all its units, or nothing if it is flagged."""
    flags = re.split(r"[,\s]+", entry.flags.replace("#", ""))
    if "fuzzy" in flags:
        return []
    for place, comment in entry.comments:
        if comment.startswith("#,"):
            return [Edit(place, place + 2, "#, fuzzy,")]
    previous = [place for place, comment in entry.comments if comment.startswith("#|")]
    if previous:
        return [Edit(previous[0], previous[0] + 2, "#, fuzzy\n#|")]
    start = min(string.start for string in entry.strings.values())
    return [Edit(start, start + 3, "#, fuzzy\nmsg")]


def _spelled(keyword: str, text: str, is_wrapped: bool) -> str:
    """Returns a keyword and its text as gettext writes them: a line for each line of the text, wrapped at blanks."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text) or [""]
    escaped = [with_backslashes(line, '"') for line in lines]
    if len(lines) == 1 and (not is_wrapped or len(keyword) + len(escaped[0]) + 3 <= _WIDTH):
        return f'{keyword} "{escaped[0]}"'
    rows = [row for line in escaped for row in (_wrapped(line) if is_wrapped else [line])]
    return "\n".join([f'{keyword} ""', *(f'"{row}"' for row in rows)])


def _wrapped(line: str) -> Sequence[str]:
    rows = [""]
    for word in re.findall(r"\S* *", line):
        if rows[-1] and len(rows[-1]) + len(word.rstrip()) + 2 > _WIDTH:
            rows.append("")
        rows[-1] += word
    return rows
