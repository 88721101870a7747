"""The units of a file: texts to translate, each with the edits that write its translation into the file."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from t2t_keras.errors import InputError
from t2t_keras.text.markup.reading import Part
from t2t_keras.text.repair import surrogates_joined

Joins = Literal["wrapped", "all"]


@dataclasses.dataclass(frozen=True)
class Edit:
    """A replacement of the characters from `start` to `end` of a file's text."""

    start: int
    end: int
    text: str


@dataclasses.dataclass(frozen=True)
class Style:
    """The conventions of a format for the texts of its units.

    Attributes:
        joins: the line breaks that may lie within a sentence: "wrapped" only after a long line whose sentence continues
            with a lowercase letter, "all" any break that does not begin a new speaker's line.
        line_limit: maximum length of a line when the lines of a sentence are wrapped again; 0 means that of the source.
            A longer line of the source raises the limit.
        accelerators: characters that may mark the following letter as a keyboard accelerator.
        numbers_arguments: whether programs understand `%2$s`, so that arguments such as `%s` may change their order.
    """

    joins: Joins = "wrapped"
    line_limit: int = 0
    accelerators: str = ""
    numbers_arguments: bool = False


@dataclasses.dataclass(frozen=True)
class Unit:
    """A text of a file that is translated as a whole.

    Attributes:
        parts: the source: its text without the file's escapes, and inline elements as the file spells them.
        start: position of the unit in the file's text.
        edits: returns the edits that write a translation, whose text outside of inline elements is escaped.
        target: the existing translation as the file spells it; "" if there is none.
        is_translated: whether the file has a translation that must stay.
        replaces: whether the translation takes the place of the source, as in a file of a single language.
        note: comments for translators.
        style: the conventions of the format.
        escape: spells text as the file does.
    """

    parts: tuple[Part, ...]
    start: int
    edits: Callable[[str], Sequence[Edit]]
    target: str = ""
    is_translated: bool = False
    replaces: bool = False
    note: str = ""
    style: Style = Style()
    escape: Callable[[str], str] = str

    @property
    def source(self) -> str:
        """The text of the source, without inline elements."""
        return "".join(part.raw for part in self.parts if part.kind == "text")


@dataclasses.dataclass(frozen=True)
class Options:
    """The user's choices for the formats.

    Attributes:
        source_language: language code of the sources.
        target_language: language code of the translations.
        column: name of the column with the sources, in files of columns.
        target_column: name of the column for the translations.
    """

    source_language: str = "en"
    target_language: str = "de"
    column: str = "source"
    target_column: str = "target"


def text_part(text: str) -> tuple[Part, ...]:
    """Returns the parts of a source without inline elements."""
    return (Part("text", text),)


def replacement(start: int, end: int) -> Callable[[str], list[Edit]]:
    """Returns the `edits` of a unit whose translation replaces a range of the file's text."""
    return lambda text: [Edit(start, end, text)]


def line_at(text: str, place: int) -> int:
    """Returns the number, counted from 1, of the line that contains a position of a text."""
    return text.count("\n", 0, place) + 1


def error_at(text: str, place: int, problem: str) -> InputError:
    """Returns the error for a position of a file's text; it names the line but not the file."""
    return InputError(f"line {line_at(text, place)}: {problem}")


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Applies edits, which must not overlap; a repeated edit of the same characters is applied once."""
    pieces, place = [], 0
    last = None
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if edit == last and edit.start < edit.end:
            continue
        last = edit
        if edit.start < place:
            raise ValueError(f"edits overlap at character {edit.start}")
        pieces += [text[place : edit.start], edit.text]
        place = edit.end
    return "".join([*pieces, text[place:]])


_ESCAPE = re.compile(r"\\(?:[uU]([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_SPELLINGS = {character: letter for letter, character in _CONTROLS.items()}


def without_backslashes(text: str) -> str:
    """Resolves escapes such as `\\n`, `\\"`, `\\x41` and `\\u0041`; two escapes may form a surrogate pair."""

    def character(match: re.Match[str]) -> str:
        if match[4]:
            return _CONTROLS.get(match[4], match[4])
        return chr(int(match[3], 8) if match[3] else int(match[1] or match[2], 16))

    return surrogates_joined(_ESCAPE.sub(character, text))


def with_backslashes(text: str, special: str) -> str:
    """Escapes backslashes, control characters such as line breaks, and the `special` characters."""
    escaped = "".join(f"\\{each}" if each in special or each == "\\" else each for each in text)
    return re.sub("[\n\t\r\a\b\f\v]", lambda match: f"\\{_SPELLINGS[match[0]]}", escaped)
