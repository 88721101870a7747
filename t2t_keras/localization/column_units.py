"""Tables with a header (.csv and .tsv): a column of sources and a column of translations."""

import re
from typing import NamedTuple

from t2t_keras.errors import InputError
from t2t_keras.localization.units import Edit, Options, Unit, error_at, replacement, text_part

_QUOTED = r'"(?:[^"]|"")*"'


class _Cell(NamedTuple):
    """A cell of a table, with its positions in the file."""

    start: int
    end: int
    text: str


def csv_units(text: str, options: Options) -> list[Unit]:
    """Returns the units of a table; the separator is the comma, semicolon or tab that is most frequent in the header.

    Raises:
        InputError: the header lacks a column, a row is shorter than the header, or a quote is not closed.
    """
    header = re.sub(_QUOTED, "", text.partition("\n")[0])
    return _units(text, max(",;\t", key=header.count), options)


def tsv_units(text: str, options: Options) -> list[Unit]:
    """Returns the units of a table whose cells are separated by tabs; raises as `csv_units`."""
    return _units(text, "\t", options)


def _units(text: str, separator: str, options: Options) -> list[Unit]:
    header, *rows = _rows(text, separator)
    names = [cell.text.strip() for cell in header]
    for flag, name in (("column", options.column), ("target_column", options.target_column)):
        if names.count(name) != 1:
            problem = "is not in the header" if name not in names else "occurs twice in the header"
            raise InputError(f"line 1: --{flag}={name} {problem}; its columns are {', '.join(map(repr, names))}")
    source, target = names.index(options.column), names.index(options.target_column)
    units = []
    for row in rows:
        if len(row) == 1 and not row[0].text:
            continue
        if len(row) <= max(source, target):
            raise error_at(text, row[0].start, f"expected {len(names)} cells, as in the header, got {len(row)}")
        units.append(_unit(text, separator, row[source], row[target]))
    return units


def _unit(text: str, separator: str, source: _Cell, target: _Cell) -> Unit:
    is_quoted = text.startswith('"', source.start) or text.startswith('"', target.start)

    def edits(translation: str) -> list[Edit]:
        spelling = translation
        if is_quoted or re.search(f'[\n"{separator}]', translation):
            spelling = '"' + translation.replace('"', '""') + '"'
        return replacement(target.start, target.end)(spelling)

    replaces = source == target
    existing = "" if replaces else target.text
    return Unit(text_part(source.text), source.start, edits, existing, bool(existing.strip()), replaces)


def _rows(text: str, separator: str) -> list[list[_Cell]]:
    """Returns the cells of each row; in a quoted cell, quotes are doubled and line breaks are text."""
    cell = re.compile(f'(?P<quoted>{_QUOTED})(?=[{separator}\n]|\\Z)|(?P<plain>(?!")[^{separator}\n]*)')
    rows: list[list[_Cell]] = [[]]
    place = 0
    while True:
        match = cell.match(text, place)
        if not match:
            raise error_at(text, place, "a quote is not closed, or text follows a closing quote")
        value = match[0][1:-1].replace('""', '"') if match["quoted"] else match[0]
        rows[-1].append(_Cell(match.start(), match.end(), value))
        place = match.end() + 1
        if match.end() >= len(text):
            return rows
        if text[match.end()] == "\n":
            if place >= len(text):
                return rows
            rows.append([])
