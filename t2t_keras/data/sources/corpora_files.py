"""Reads lines of plain or compressed text files, and pairs of lines of two files."""

import bz2
import gzip
import lzma
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from t2t_keras.data.cleaning import Pair
from t2t_keras.errors import InputError, explained

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def check_readable(path: str | Path) -> None:
    """Raises an InputError if a file is empty, cannot be read, or can be read only once."""
    with explained(f"{path}: cannot be read"):
        if not stat.S_ISREG(Path(path).stat().st_mode):  # opening a pipe would wait for its writer
            raise InputError(f"{path}: a folder, pipe or device; text is read several times, so give a file")
        with open(path, "rb") as file:
            if not file.read(1):
                raise InputError(f"{path}: the file is empty")


def read_lines(path: str | Path) -> Iterator[str]:
    """Yields the lines of a UTF-8 file, which may be compressed (.gz, .bz2, .xz).

    Only "\\n" and "\\r\\n" end a line, so that other separators within a sentence do not shift the following lines.

    Raises:
        InputError: the file is missing, unreadable, damaged or not UTF-8; names the file and, if known, the line.
    """
    for number, line in enumerate(read_raw_lines(path), start=1):
        try:
            yield decoded_line(line)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from error


def is_compressed(path: str | Path) -> bool:
    """Returns whether the name of a file has the suffix of a compressed file."""
    return Path(path).suffix in _OPENERS


def read_raw_lines(path: str | Path) -> Iterator[bytes]:
    """Yields the undecoded lines of a plain or compressed file, without a byte order mark; raises as `read_lines`."""
    number = 0
    try:
        with explained(f"{path}: cannot be read"), _OPENERS.get(Path(path).suffix, open)(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                yield without_byte_order_mark(line) if number == 1 else line
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"{path}, after line {number}: broken compressed file: {error}") from error


def without_byte_order_mark(line: bytes) -> bytes:
    """Removes the byte order mark from the first line of a file, if there is one."""
    return line.removeprefix(_BYTE_ORDER_MARK)


def decoded_line(line: bytes) -> str:
    """Decodes a line and removes its line end; raises an InputError, which names only the byte, if it is not UTF-8."""
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"not valid UTF-8 (byte {error.start + 1}: {error.reason})") from error


def read_pairs(source_path: str | Path, target_path: str | Path) -> Iterator[Pair]:
    """Yields pairs of corresponding lines of two files.

    Raises:
        InputError: as in `read_lines`, or the files have different numbers of lines.
    """
    source_lines, target_lines = read_lines(source_path), read_lines(target_path)
    count = 0
    for source in source_lines:
        target = next(target_lines, None)
        if target is None:
            num_sources = count + 1 + sum(1 for _ in source_lines)
            raise unequal(source_path, num_sources, target_path, count)
        count += 1
        yield source, target
    if extra := sum(1 for _ in target_lines):
        raise unequal(source_path, count, target_path, count + extra)


def unequal(source_path: str | Path, source_count: int, target_path: str | Path, target_count: int) -> InputError:
    """Returns the error for two files with different numbers of lines."""
    return InputError(
        f"unequal numbers of lines: {source_path} has {source_count}, {target_path} has {target_count}; "
        "line n of one must be the translation of line n of the other"
    )
