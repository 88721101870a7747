"""Rows of tables as text: tab-separated and comma-separated values, with the quotes of spreadsheets.

A spreadsheet puts a cell in double quotes if it contains a separator, a line break or a quote, and doubles the quotes
in it. In tab-separated text from other programs, quotes belong to the text, so `tab_separated_rows` removes only quotes
that a spreadsheet must have added.
"""

import collections
import csv
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

from t2t_keras.errors import InputError

Row = tuple[int, list[str]]  # number of the row's first line, and the cells

_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_CELL = re.compile(r'"(?:[^"]|"")*"(?=\t|\Z)|[^\t]*')
_SAMPLE_ROWS = 1000  # rows that decide whether all cells are quoted
_MAX_LINES = 100  # lines of a cell with line breaks
_DELIMITERS = (",", ";", "\t", "|")
_DELIMITER_ROWS = 20  # rows that decide the delimiter
# A column that begins with this many lines of numbers has ids or labels instead of text.
_NUMBERS_IN_A_ROW = 20


def tab_separated_rows(lines: Iterable[str]) -> Iterator[Row]:
    """Yields the rows of tab-separated values.

    A cell in quotes loses them if quotes within it are doubled, if it has a line break, or if all cells at the
    beginning of the file are in quotes. Other quotes belong to the text.
    """
    rows = _whole_rows(lines)
    sample = list(itertools.islice(rows, _SAMPLE_ROWS))
    cells = [cell for _, row in sample for cell in row if cell]
    all_quoted = bool(cells) and all(map(_QUOTED.fullmatch, cells))
    for number, row in itertools.chain(sample, rows):
        yield number, [_unquoted(cell, all_quoted) for cell in row]


def comma_separated_rows(lines: Iterable[str], path: str) -> Iterator[Row]:
    """Yields the rows of comma-separated values; the delimiter may also be a semicolon, a tab or a bar.

    Args:
        lines: the lines without their line ends.
        path: name of the file, for messages.

    Raises:
        InputError: rows have different numbers of cells, or a quote is not closed; names `path` and the line.
    """
    remaining = (line.replace("\r", " ") for line in lines)  # the module csv refuses carriage returns within lines
    sample = list(itertools.islice(remaining, 2 * _DELIMITER_ROWS))
    declaration = re.fullmatch(r"sep=(.)", sample[0]) if sample else None  # Excel's first line
    delimiter = declaration[1] if declaration else _delimiter(sample)
    skipped = int(declaration is not None)
    is_at_end = False

    def whole_lines() -> Iterator[str]:
        nonlocal is_at_end
        yield from (f"{line}\n" for line in itertools.chain(sample[skipped:], remaining))
        is_at_end = True
        yield "\n"  # a blank row, or part of the last row if a quote is open, which the module csv does not report

    reader = csv.reader(whole_lines(), delimiter=delimiter)
    width, first = 0, 1
    while True:
        first = skipped + reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(f"{path}, line {first}: {error}; is a quote not closed?") from error
        if not row:
            continue
        if is_at_end:
            raise InputError(f"{path}, line {first}: a quote is not closed")
        width = width or len(row)
        if width == 1:
            raise InputError(f"{path}, line {first}: expected source and target separated by a comma or a semicolon")
        if len(row) != width:
            raise InputError(
                f"{path}, line {first}: {len(row)} cells separated by {delimiter!r}, but {width} in the first row; "
                f"text with {delimiter!r} must be in double quotes"
            )
        yield first, row


def pairs_of_columns(rows: Iterable[Row], path: str, columns: tuple[int, int] = (0, 1)) -> Iterator[tuple[str, str]]:
    """Yields two columns of rows; blank lines are skipped.

    Args:
        rows: the rows.
        path: name of the file, for messages.
        columns: numbers of the columns, from 0.

    Raises:
        InputError: a row has too few columns, or one column begins with numbers (perhaps after a header) where the
            other one does not; names `path` and the line.
    """
    numbers = [0, 0]
    for count, (line, row) in enumerate(rows, start=1):
        if row == [""]:
            continue
        if len(row) <= max(columns):
            raise InputError(f"{path}, line {line}: expected source and target separated by a tab")
        cells = [row[column] for column in columns]
        are_numbers = [cell.strip().isdecimal() for cell in cells]
        for place in (0, 1):
            numbers[place] += are_numbers[place] > are_numbers[1 - place]
            if numbers[place] == _NUMBERS_IN_A_ROW and count <= _NUMBERS_IN_A_ROW + 1:
                problem = f"column {columns[place] + 1} has numbers, such as {cells[place].strip()} in line {line}"
                expected = "expected source and target in the first two columns, or a header that names their columns"
                raise InputError(f"{path}: {problem}; {expected}; to read numbers as text, give two files")
        yield cells[0], cells[1]


def _whole_rows(lines: Iterable[str]) -> Iterator[Row]:
    """Yields rows with their quotes; the lines of a quoted cell with line breaks become one row."""
    remaining = enumerate(lines, start=1)
    pending: collections.deque[tuple[int, str]] = collections.deque()  # lines that were read ahead

    def line_ahead(place: int) -> str | None:
        while len(pending) <= place:
            if (following := next(remaining, None)) is None:
                return None
            pending.append(following)
        return pending[place][1]

    while True:
        numbered = pending.popleft() if pending else next(remaining, None)
        if numbered is None:
            return
        number, line = numbered
        row = line.split("\t")
        # If this line and the next one are complete rows, the quote belongs to the text.
        if _is_open(row[-1]) and (len(row) < 2 or "\t" not in (line_ahead(0) or "")):
            row, num_lines = _continued(line, row, line_ahead)
            for _ in range(num_lines):
                pending.popleft()
        yield number, row


def _continued(line: str, row: list[str], line_ahead: Callable[[int], str | None]) -> tuple[list[str], int]:
    """Returns the row whose last cell is closed in one of the next lines, and the number of these lines.

    If no line closes the cell, the row is `row`, which ends with the line.
    """
    text = line
    for place in range(_MAX_LINES):
        if (following := line_ahead(place)) is None:
            break
        text = f"{text}\n{following}"
        cells = _cells(text)
        if all("\n" not in cell or _QUOTED.fullmatch(cell) for cell in cells):
            return cells, place + 1
    return row, 0


def _is_open(cell: str) -> bool:
    """Returns whether a cell begins with a quote that does not end in it."""
    return cell.startswith('"') and cell.count('"') % 2 == 1


def _cells(text: str) -> list[str]:
    """Splits a row at the tabs outside of quoted cells."""
    cells, place = [], 0
    while place <= len(text):
        match = cast(re.Match, _CELL.match(text, place))  # the second alternative matches any text
        cells.append(match[0])
        place = match.end() + 1
    return cells


def _unquoted(cell: str, all_quoted: bool) -> str:
    if not _QUOTED.fullmatch(cell):
        return cell
    content = cell[1:-1]
    return content.replace('""', '"') if all_quoted or '""' in content or "\n" in content else cell


def _delimiter(lines: Sequence[str]) -> str:
    """Returns the delimiter that divides the most of the first rows into the same number of cells, at least two.

    Of several such delimiters, the one followed by the fewest spaces is returned, because in text, a space follows a
    comma.
    """
    best, delimiter = (0, 0, 0), _DELIMITERS[0]
    for candidate in _DELIMITERS:
        try:
            reader = csv.reader((f"{line}\n" for line in lines), delimiter=candidate)
            rows = list(itertools.islice(filter(None, reader), _DELIMITER_ROWS))
        except csv.Error:
            continue
        if rows and (width := len(rows[0])) > 1:
            num_spaces = sum(cell.startswith(" ") for row in rows for cell in row[1:])
            rank = sum(len(row) == width for row in rows), -num_spaces, -width
            if rank > best:
                best, delimiter = rank, candidate
    return delimiter
