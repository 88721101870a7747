"""Reads lines of plain or compressed text files, and pairs of lines of two files."""

import bz2
import contextlib
import gzip
import io
import itertools
import lzma
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple, cast

from t2t_keras.data.cleaning import Pair
from t2t_keras.errors import InputError, explained, optional_module

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_START_BYTES = 4096  # at the beginning of a file, which identify its format
_PART_BYTES = 1 << 13  # decompressed at once
_LINE_BYTES = 1 << 20  # at the beginning of a file, which are searched for a line end


class _Compression(NamedTuple):
    """A form of compression.

    Attributes:
        magic: pattern of the first bytes of a compressed file.
        open: returns the decompressed contents of a file.
    """

    magic: re.Pattern[bytes]
    open: Callable[[IO[bytes]], IO[bytes]]


class _ZstandardStream(io.RawIOBase):
    """Decompressed contents of Zstandard frames; unlike the package's stream, it reports missing data."""

    def __init__(self, file: IO[bytes]) -> None:
        zstandard = optional_module(
            "zstandard", f"{getattr(file, 'name', 'a file')}: the package zstandard is missing: pip install '.[data]'"
        )
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)  # as large as in `zstd --long=31`
        self._file, self._frame, self._pending = file, self._decompressor.decompressobj(), memoryview(b"")
        self._error = zstandard.ZstdError

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._pending:
            rest = self._frame.unused_data if self._frame.eof else b""
            data = rest or self._file.read(_PART_BYTES)
            if not data:
                if not self._frame.eof:
                    raise EOFError("the end of the compressed data is missing")
                return 0
            if self._frame.eof:
                self._frame = self._decompressor.decompressobj()
            try:
                self._pending = memoryview(self._frame.decompress(data))  # slices are views
            except self._error as error:
                raise EOFError(str(error)) from error
        count = min(len(buffer), len(self._pending))
        buffer[:count], self._pending = self._pending[:count], self._pending[count:]
        return count


# The module functions, which have precise types, accept only the modes of text files by keyword.
_COMPRESSIONS: dict[str, _Compression] = {
    ".gz": _Compression(re.compile(rb"\x1f\x8b"), cast(Any, gzip.open)),
    ".bz2": _Compression(re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"), cast(Any, bz2.open)),
    ".xz": _Compression(re.compile(rb"\xfd7zXZ\x00"), cast(Any, lzma.open)),
    ".zst": _Compression(re.compile(rb"\x28\xb5\x2f\xfd"), cast(Any, _ZstandardStream)),
}

# Formats that are not text in UTF-8, by their first bytes, and the remedy.
_UNPACK = "unpack it"
PARQUET = rb"PAR1[\x00-\x08\x0e-\x1f]"  # text may begin with PAR1 too
_BINARY = {
    rb"\xff\xfe\x00\x00|\x00\x00\xfe\xff": ("text in UTF-32", "convert it: iconv -f UTF-32 -t UTF-8"),
    rb"\xff\xfe|\xfe\xff|(?:[^\x00]\x00){8}|(?:\x00[^\x00]){8}": (
        "text in UTF-16",
        "convert it: iconv -f UTF-16 -t UTF-8",
    ),
    rb"PK[\x03\x05]": ("a ZIP archive", _UNPACK),
    PARQUET: ("a Parquet file", "name it .parquet"),
    rb"\xd0\xcf\x11\xe0": ("a document of Microsoft Office", "save its text as .txt, .csv or .tsv in UTF-8"),
    rb"SQLite format 3\x00": ("a database", "export its text as .tmx or .tsv"),
    rb"7z\xbc\xaf\x27\x1c|Rar!\x1a|\x1f\x9d|\x04\x22\x4d\x18|\x5d\x00\x00": (
        "compressed in a way that is not supported",
        f"{_UNPACK}, or use .gz, .bz2, .xz or .zst",
    ),
    rb"[\s\S]{257}ustar(?:\x00|  \x00)": ("a tar archive", _UNPACK),
    rb"[\s\S]{0,1000}\x00": ("a binary file", "give text in UTF-8"),
}
_DAMAGED: tuple[type[BaseException], ...] = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


def check_readable(path: str | Path) -> None:
    """Raises an InputError if a file is empty, cannot be read, or can be read only once."""
    with explained(f"{path}: cannot be read"):
        if not stat.S_ISREG(Path(path).stat().st_mode):  # opening a pipe would wait for its writer
            raise InputError(f"{path}: a folder, pipe or device; text is read several times, so give a file")
        with open(path, "rb") as file:
            if not file.read(1):
                raise InputError(f"{path}: the file is empty")


def read_lines(path: str | Path) -> Iterator[str]:
    """Yields the lines of a UTF-8 file, which may be compressed (.gz, .bz2, .xz, .zst).

    Only "\\n" and "\\r\\n" end a line, so that other separators within a sentence do not shift the following lines. In
    a file without any "\\n", except possibly at its end, "\\r" ends a line.

    Raises:
        InputError: the file is missing, unreadable, damaged or not UTF-8; names the file and, if known, the line.
    """
    return decoded_lines(read_raw_lines(path), str(path))


def decoded_lines(lines: Iterator[bytes], path: str) -> Iterator[str]:
    """Yields decoded lines without their line ends; raises an InputError, which names `path` and the line."""
    for number, line in enumerate(lines, start=1):
        try:
            yield decoded_line(line)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from error


def is_compressed(path: str | Path) -> bool:
    """Returns whether the name of a file has the suffix of a compressed file."""
    return Path(path).suffix in _COMPRESSIONS


def without_compression(name: str) -> str:
    """Returns the name of a file without the suffixes of compressed files."""
    while name.lower().endswith(tuple(_COMPRESSIONS)):
        name = name.rpartition(".")[0]
    return name


def has_plain_lines(path: Path) -> bool:
    """Returns whether a file is text that is not compressed, and only "\\n" ends its lines."""
    with explained(f"{path}: cannot be read"), open(path, "rb") as file:
        start = file.read(_LINE_BYTES)
    is_packed = any(compression.magic.match(start) for compression in _COMPRESSIONS.values())
    is_binary = any(re.match(pattern, start) for pattern in _BINARY)
    return not (is_compressed(path) or is_packed or is_binary) and (b"\n" in start[:-1] or b"\r" not in start)


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[BinaryIO]:
    """Opens the contents of a file, which are decompressed if the first bytes say so.

    Raises:
        InputError: the file is missing, unreadable or damaged, even if the damage is noticed only while it is read.
    """
    with damage_named(path), explained(f"{path}: cannot be read"), open(path, "rb") as file:
        if Path(path).suffix in _COMPRESSIONS and not _COMPRESSIONS[Path(path).suffix].magic.match(start_of(file)):
            raise InputError(f"{path}: not a {Path(path).suffix} file, or damaged; rename it, or download it again")
        yield decompressed(file)


def decompressed(file: BinaryIO) -> BinaryIO:
    """Returns the contents of a file as a stream with `start_of`, decompressed if necessary."""
    start = start_of(file)
    for compression in _COMPRESSIONS.values():
        if compression.magic.match(start):
            return decompressed(io.BufferedReader(cast(Any, compression.open(file))))
    return file


def start_of(file: BinaryIO) -> bytes:
    """Returns up to 4 KiB from the beginning of a buffered file that has not been read yet, without advancing it."""
    return cast(io.BufferedReader, file).peek(_START_BYTES)[:_START_BYTES]


@contextlib.contextmanager
def damage_named(path: str | Path) -> Iterator[None]:
    """Turns the errors of damaged compressed files that are raised inside into an InputError that names the file."""
    try:
        yield
    except _DAMAGED as error:
        raise InputError(f"{path}: broken compressed file: {error}") from error


def read_raw_lines(path: str | Path) -> Iterator[bytes]:
    """Yields the undecoded lines of a plain or compressed file, without a byte order mark; see `read_lines`."""
    with opened(path) as file:
        yield from raw_lines(file, str(path))


def raw_lines(file: BinaryIO, path: str) -> Iterator[bytes]:
    """Yields the undecoded lines of an open file; see `read_raw_lines`."""
    start = start_of(file)
    for pattern, (kind, remedy) in _BINARY.items():
        if re.match(pattern, start):
            raise InputError(f"{path}: {kind}, not text in UTF-8; {remedy}")
    number = 0
    try:
        first = without_byte_order_mark(file.readline())
        body = first.removesuffix(b"\n").removesuffix(b"\r")
        second = file.readline() if b"\r" in body else b""
        if b"\r" in body and not second:  # no line feed, except possibly at the end
            yield from first.splitlines(keepends=True)
            return
        for line in itertools.chain([first] if first else [], [second] if second else [], file):
            number += 1
            yield line
    except _DAMAGED as error:
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
    return paired(read_lines(source_path), read_lines(target_path), source_path, target_path)


def paired(
    source_lines: Iterator[str], target_lines: Iterator[str], source_path: str | Path, target_path: str | Path
) -> Iterator[Pair]:
    """Yields pairs of corresponding lines; raises an InputError, which names both files, if their numbers differ."""
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
