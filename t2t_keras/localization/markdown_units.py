"""Markdown: paragraphs, headings and the cells of tables, with their inline markup."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from t2t_keras.errors import optional_module
from t2t_keras.localization.unit_text import BLOCKS
from t2t_keras.localization.units import Edit, Options, Style, Unit
from t2t_keras.text.markup.reading import Part

MISSING = "the package markdown-it-py is missing: pip install '.[localization]'"
_FRONT_MATTER = re.compile(r"(?s)\A(---|\+\+\+)[ \t]*\n.*?\n\1[ \t]*(?:\n|\Z)")
_STYLE = Style(joins="all")
# Markup of extensions that stays unchanged: task boxes, footnote references and formulas.
_EXTENSION = re.compile(r"\[\^[^\]\s]+\]:?|\$\$.+?\$\$|\$(?=\S)[^$\n]*[^$\s]\$(?!\d)")
_TASK = re.compile(r"\[[ xX]\] ")
_SPECIAL = "*_`[]<>~"
# The beginning of a line that would begin a list, a heading or another block.
_BLOCK_START = re.compile(
    r"(>|[-+*](?=\s|$)|#(?=#{0,5}(?:\s|$))|=(?==*\s*$)|-(?=-*\s*$)|\*(?=\*{2,}\s*$)|_(?=_{2,}\s*$)|`(?=``[^`]*$)|~(?=~~)"
    r"|:(?=::))|(\d{1,9})([.)](?=\s|$))"
)
# A soft line break before HTML that would begin a block at the beginning of a line.
_BEFORE_HTML_BLOCK = re.compile(
    rf"(?<!  )(?<!\\)\n\s*(?=<(?:[!?]|/?(?:script|style|textarea|{'|'.join(sorted(BLOCKS))})\b))", re.IGNORECASE
)
_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)[^>]*?(/?)>")
_WITHOUT_END = ("img", "wbr", "input", "br", "hr")

_Lines = Sequence[tuple[int, int]]


class _Unaligned(Exception):
    """The tokens of a text do not account for its characters."""


def markdown_units(text: str, options: Options) -> list[Unit]:
    """Returns the units of a Markdown file (CommonMark with tables and strikethrough).

    Code, HTML blocks, images, front matter, and the targets and titles of links are not text. A block whose tokens do
    not account for its characters is left out.
    """
    package = optional_module("markdown_it", MISSING)
    parser = package.MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")
    front = _FRONT_MATTER.match(text)
    offset = front.end() if front else 0
    starts = [offset, *(match.end() for match in re.compile("\n").finditer(text, offset)), len(text)]
    units, in_table, place = [], False, offset
    for token in parser.parse(text[offset:]):
        in_table = token.type == "table_open" or (in_table and token.type != "table_close")
        if token.type != "inline" or not token.content.strip():
            continue
        numbers = range(token.map[0], token.map[0] + token.content.count("\n") + 1)
        place = max(place, starts[token.map[0]]) if in_table else starts[token.map[0]]
        bounds = [(max(place, starts[number]), starts[number + 1]) for number in numbers]
        try:
            lines = _lines(text, token.content, bounds, in_table)
            place = lines[-1][1]
            parts = tuple(_TokenReader(parser.helpers, token.content).read(token.children))
        except _Unaligned:
            continue
        units.append(_unit(text, parts, lines, in_table))
    return units


def _lines(text: str, content: str, bounds: _Lines, in_table: bool) -> list[tuple[int, int]]:
    """Returns the start and end in the file of each line of a block, without the markup of the block around it.

    The blanks at the end of a line belong to it, because they may be a line break, except in the last line.
    """
    lines, rows = [], content.split("\n")
    for number, (line, (start, end)) in enumerate(zip(rows, bounds, strict=True), start=1):
        spelling = line.strip().replace("|", "\\|") if in_table else line.strip()
        place = text.find(spelling, start, end)
        if place < 0:
            raise _Unaligned
        last = place + len(spelling)
        blanks = len(text[last:end]) - len(text[last:end].lstrip(" \t")) if number < len(rows) else 0
        lines.append((place, last + blanks))
    return lines


def _unit(text: str, parts: tuple[Part, ...], lines: _Lines, in_table: bool) -> Unit:
    written = "".join(part.raw for part in parts if part.kind == "text")
    special = "".join(character for character in _SPECIAL if character not in written)

    def edits(translation: str) -> list[Edit]:
        if in_table:
            return [Edit(*lines[0], re.sub(r"\s*\n\s*", " ", translation).replace("|", "\\|"))]
        text_lines = _BEFORE_HTML_BLOCK.sub(" ", translation).split("\n")
        first, *rest = [row if number == 0 else row.lstrip() for number, row in enumerate(text_lines)]
        is_first_like_block = _BLOCK_START.match(text, *lines[0])
        rows = [first if is_first_like_block else _escape_block_start(first), *map(_escape_block_start, rest)]
        if len(rows) < len(lines):
            removal = Edit(lines[len(rows) - 1][1], lines[-1][1], "")
            return [*(Edit(*line, row) for line, row in zip(lines, rows, strict=False)), removal]
        begin = text[text.rfind("\n", 0, lines[-1][0]) + 1 : lines[-1][0]] if len(lines) > 1 else ""
        rows = [*rows[: len(lines) - 1], f"\n{begin}".join(rows[len(lines) - 1 :])]
        return [Edit(*line, row) for line, row in zip(lines, rows, strict=True)]

    def escape(piece: str) -> str:
        return re.sub(f"[{re.escape(special)}]", r"\\\g<0>", piece) if special else piece

    return Unit(parts, lines[0][0], edits, replaces=True, style=_STYLE, escape=escape)


def _escape_block_start(row: str) -> str:
    match = _BLOCK_START.match(row)
    if not match:
        return row
    return f"\\{row}" if match[1] else f"{match[2]}\\{row[match.start(3) :]}"


class _TokenReader:
    """Finds the tokens of a block in its text, in order.

    Args:
        helpers: functions of the parser.
        content: the text of the block.
    """

    def __init__(self, helpers: Any, content: str) -> None:
        self._helpers = helpers
        self._content, self._place = content, 0
        self._in_autolink = False

    def read(self, tokens: Sequence[Any]) -> list[Part]:
        """Returns text, tags such as "**" and "](target)", and items that stay unchanged.

        Raises:
            _Unaligned: a token is not where it should be.
        """
        parts = [part for token in tokens for part in self._read(token)]
        if self._content[self._place :].strip():
            raise _Unaligned
        return parts

    def _read(self, token: Any) -> Iterator[Part]:
        kind = token.type
        if token.markup == "autolink":
            self._in_autolink = kind == "link_open"
            if self._in_autolink:
                yield self._match(r"<[^<>\s]*>")
        elif self._in_autolink:
            return
        elif kind == "text":
            yield from self._text(token.content)
        elif kind == "softbreak":
            yield self._match(r"[ \t]*\n[ \t]*", "text")
        elif kind == "hardbreak":
            yield Part("whole", self._match(r"(?:[ \t]{2,}|\\)\n[ \t]*").raw, is_inline=False)
        elif kind == "code_inline":
            yield self._match(rf"(?s){token.markup}(?!`).*?(?<!`){token.markup}(?!`)")
        elif kind == "html_inline":
            yield _html(self._match(re.escape(token.content)).raw)
        elif kind == "image":
            yield Part("whole", self._match(r"!\[").raw + self._label() + self._target(""))
        elif kind == "link_open":
            self._label_start = self._place + 1
            yield self._match(r"\[", "start", "link")
        elif kind == "link_close":
            label = self._content[self._label_start : self._place]
            yield Part("end", self._target(label), "link")
        else:  # text_special, em_open, strong_close and others
            name, _, side = kind.rpartition("_")
            sides: dict[str, Literal["start", "end"]] = {"open": "start", "close": "end"}
            yield self._match(re.escape(token.markup), sides.get(side, "whole"), name)

    def _match(self, pattern: str, kind: Literal["text", "start", "end", "whole"] = "whole", name: str = "") -> Part:
        match = re.compile(pattern).match(self._content, self._place)
        if not match:
            raise _Unaligned
        self._place = match.end()
        return Part(kind, match[0], name)

    def _text(self, text: str) -> Iterator[Part]:
        if self._place == 0 and (task := _TASK.match(text)):
            yield self._match(re.escape(task[0]))
            text = text[task.end() :]
        raw = self._match(re.escape(text)).raw
        place = 0
        for match in _EXTENSION.finditer(raw):
            yield Part("text", raw[place : match.start()])
            yield Part("whole", match[0])
            place = match.end()
        yield Part("text", raw[place:])

    def _label(self) -> str:
        """Returns the rest of the label of an image, up to its bracket."""
        start, depth = self._place, 1
        for match in re.compile(r"\\.|`+[^`]*`+|[\[\]]").finditer(self._content, start):
            depth += {"[": 1, "]": -1}.get(match[0], 0)
            if not depth:
                self._place = match.start()
                return self._content[start : self._place]
        raise _Unaligned

    def _target(self, label: str) -> str:
        """Returns the end of a link or an image, such as "](target)" or "][reference]".

        A link whose text is the reference, such as "[text]", gets the reference after it.
        """
        start = self._place
        self._match(r"\]")
        if self._content.startswith("(", self._place) and (end := self._destination_end(self._place + 1)):
            self._place = end
        elif (match := re.compile(r"\[((?:\\.|[^\[\]\\])*)\]").match(self._content, self._place)) and match[1]:
            self._place = match.end()
        else:
            self._place += 2 if match else 0
            return f"][{label}]" if label else self._content[start : self._place]
        return self._content[start : self._place]

    def _destination_end(self, place: int) -> int | None:
        """Returns the position after the parenthesis of a link's target, or None if it is not one."""
        text, end = self._content, len(self._content)
        blanks = re.compile(r"\s*")

        def skip_blanks(place: int) -> int:
            match = blanks.match(text, place)
            return match.end() if match else place

        place = skip_blanks(place)
        destination = self._helpers.parseLinkDestination(text, place, end)
        place = skip_blanks(destination.pos if destination.ok else place)
        title = self._helpers.parseLinkTitle(text, place, end)
        place = skip_blanks(title.pos if title.ok else place)
        return place + 1 if text.startswith(")", place) else None


def _html(tag: str) -> Part:
    """Returns the part of an inline HTML tag or comment."""
    match = _TAG.fullmatch(tag)
    if not match or match[3] or match[2].lower() in _WITHOUT_END:
        return Part("whole", tag, is_inline=not match or match[2].lower() not in ("br", "hr"))
    return Part("end" if match[1] else "start", tag, match[2].lower())
