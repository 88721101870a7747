"""Reads pairs of corresponding lines of two files, which several workers can divide among themselves.

Newlines are counted first, in blocks of bytes. A worker then starts to read at the block with the newline before its
first line. Compressed files cannot be read in this way.
"""

import bisect
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_keras.data.cleaning import Pair
from t2t_keras.data.sources.corpora_files import (
    decoded_line,
    has_plain_lines,
    read_pairs,
    unequal,
    without_byte_order_mark,
)
from t2t_keras.errors import InputError, explained

_BLOCK_BYTES = 1 << 23  # a worker skips at most this many bytes
_COUNTED_BYTES = 1 << 30  # bytes in which a single job counts newlines

# Calls a function for jobs (number, argument) and returns the results by number.
RunAll = Callable[[Callable[..., Any], Sequence[tuple[int, Any]]], Mapping[int, Any]]


@dataclasses.dataclass(frozen=True)
class ParallelFiles:
    """Pairs of corresponding lines of two files.

    Attributes:
        source: path of the sources.
        target: path of the targets.
        tag: word that is prepended to each source, with a space; "" for none.
    """

    source: Path
    target: Path
    tag: str = ""

    def __call__(self) -> Iterator[Pair]:
        """Yields all pairs; see `read_pairs`."""
        return tagged(read_pairs(self.source, self.target), self.tag)

    @property
    def is_splittable(self) -> bool:
        """Whether processes can read different parts of the files."""
        return all(map(_is_splittable, (self.source, self.target)))


@dataclasses.dataclass(frozen=True)
class Lines:
    """Consecutive lines of an uncompressed file.

    Attributes:
        path: the file.
        first: number of the first line, from 0.
        end: number of the line after the last one.
        offset: byte at which to start reading.
        skipped: number of newlines between the offset and the first line.
    """

    path: Path
    first: int
    end: int
    offset: int
    skipped: int

    def __iter__(self) -> Iterator[str]:
        """Yields the lines as `read_lines` does; raises an InputError also if there are fewer lines."""
        number = self.first
        with explained(f"{self.path}: cannot be read"), open(self.path, "rb") as file:
            file.seek(self.offset)
            for line in itertools.islice(file, self.skipped, self.skipped + self.end - self.first):
                number += 1
                try:
                    yield decoded_line(without_byte_order_mark(line) if number == 1 else line)
                except InputError as error:
                    raise InputError(f"{self.path}, line {number}: {error}") from error
        if number < self.end:
            raise InputError(f"{self.path}: line {number + 1} is missing: the file was changed while it was read")


@dataclasses.dataclass(frozen=True)
class PairsOfLines:
    """Pairs of corresponding lines of two files, which are read in the process that iterates over them.

    Attributes:
        source: lines of the sources.
        target: lines of the targets.
        tag: word that is prepended to each source, with a space; "" for none.
    """

    source: Lines
    target: Lines
    tag: str

    def __iter__(self) -> Iterator[Pair]:
        """Yields the pairs; see `Lines`."""
        return tagged(zip(self.source, self.target, strict=True), self.tag)


def split(files: Sequence[ParallelFiles], pairs: int, run_all: RunAll) -> list[list[PairsOfLines]]:
    """Divides corpora into blocks of pairs.

    Args:
        files: the files of each corpus.
        pairs: number of pairs in a block; the last block of a corpus may have fewer.
        run_all: runs the jobs that count the newlines.

    Returns:
        The blocks of each corpus.

    Raises:
        InputError: two files have different numbers of lines.
    """
    paths = list(dict.fromkeys(path for each in files for path in (each.source, each.target)))
    places = {path: _Places(path) for path in paths}
    jobs = [(path, start) for path in paths for start in range(0, path.stat().st_size, _COUNTED_BYTES)]
    arguments = [(path, start, start + _COUNTED_BYTES, _BLOCK_BYTES) for path, start in jobs]
    counts = run_all(count_newlines, list(enumerate(arguments)))
    for number, (path, _) in enumerate(jobs):
        places[path].add(counts[number])
    blocks = []
    for each in files:
        source, target = places[each.source], places[each.target]
        if source.lines != target.lines:
            raise unequal(each.source, source.lines, each.target, target.lines)
        starts = range(0, source.lines, pairs)
        blocks.append([PairsOfLines(source.of(at, pairs), target.of(at, pairs), each.tag) for at in starts])
    return blocks


def _is_splittable(path: Path) -> bool:
    """Returns whether a file has plain lines and is the same for every process (/dev/stdin is not)."""
    return path.is_file() and path.absolute().parts[1] not in ("dev", "proc") and has_plain_lines(path)


def count_newlines(number: int, part: tuple[Path, int, int, int]) -> list[list[int]]:
    """Counts the newlines in each block of a part of a file.

    Args:
        number: number of the job; not used.
        part: the path, the first byte, the byte after the last, and the number of bytes in a block.

    Returns:
        The number of newlines and the last byte of each block.
    """
    del number
    path, start, end, block_bytes = part
    counts = []
    with explained(f"{path}: cannot be read"), open(path, "rb") as file:
        for offset in range(start, end, block_bytes):
            file.seek(offset)
            if not (block := file.read(block_bytes)):
                break
            counts.append([block.count(b"\n"), block[-1]])
    return counts


class _Places:
    """The positions of the lines of a file."""

    def __init__(self, path: Path) -> None:
        self._path, self._ends_in_line = path.absolute(), False
        self._newlines_before = [0]  # newlines before each block

    def add(self, counts: Iterable[tuple[int, int]]) -> None:
        """Adds the counts of the next blocks, from `count_newlines`."""
        for newlines, last in counts:
            self._newlines_before.append(self._newlines_before[-1] + newlines)
            self._ends_in_line = last != ord("\n")

    @property
    def lines(self) -> int:
        return self._newlines_before[-1] + self._ends_in_line

    def of(self, first: int, count: int) -> Lines:
        """Returns up to `count` lines, from the line `first` on.

        A line begins after the newline of the previous line, so reading starts at the block with that newline.
        """
        block = max(0, bisect.bisect_left(self._newlines_before, first) - 1)
        num_skipped = first - self._newlines_before[block]
        return Lines(self._path, first, min(first + count, self.lines), block * _BLOCK_BYTES, num_skipped)


def tagged(pairs: Iterable[Pair], tag: str) -> Iterator[Pair]:
    """Yields pairs with a tag and a space prepended to the source, unless the tag is empty."""
    return ((f"{tag} {source}" if tag else source, reference) for source, reference in pairs)
