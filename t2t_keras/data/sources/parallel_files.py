"""Two files, line n of one with line n of the other, of which several workers read different lines at once.

Lines are counted first, in blocks of bytes. A worker then begins to read at the block in which its first line begins.
Compressed files do not split in this way.
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
    is_compressed,
    read_pairs,
    unequal,
    without_byte_order_mark,
)
from t2t_keras.errors import InputError, explained

_BLOCK_BYTES = 1 << 23  # a worker skips at most so many
_COUNTED_BYTES = 1 << 30  # of one job that counts

# Calls a function for jobs (number, argument) and returns each one's result by its number.
RunAll = Callable[[Callable[..., Any], Sequence[tuple[int, Any]]], Mapping[int, Any]]


@dataclasses.dataclass(frozen=True)
class ParallelFiles:
    """Pairs of the lines of two files; a call reads them. A `tag` and a space are put in front of sources."""

    source: Path
    target: Path
    tag: str = ""

    def __call__(self) -> Iterator[Pair]:
        """Yields all pairs; raises as `read_pairs`."""
        return tagged(read_pairs(self.source, self.target), self.tag)

    @property
    def splits(self) -> bool:
        """Whether other processes can read the files from the middle."""
        return all(map(_splits, (self.source, self.target)))


@dataclasses.dataclass(frozen=True)
class Lines:
    """Lines `first`, from 0, up to `end` of a plain file, which begin `skipped` lines behind the byte `offset`."""

    path: Path
    first: int
    end: int
    offset: int
    skipped: int

    def __iter__(self) -> Iterator[str]:
        """Yields the lines as `read_lines` does; an InputError also says that there are fewer."""
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
    """Pairs of some lines of two files, which whoever iterates over it reads; sources get the `tag`."""

    source: Lines
    target: Lines
    tag: str

    def __iter__(self) -> Iterator[Pair]:
        """Yields the pairs; raises as `Lines`."""
        return tagged(zip(self.source, self.target, strict=True), self.tag)


def split(files: Sequence[ParallelFiles], pairs: int, run_all: RunAll) -> list[list[PairsOfLines]]:
    """The text of each of several corpora in blocks of so many pairs, the last one perhaps with fewer.

    `run_all` runs what counts the lines of the files. An InputError says that two files have not equally many.
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


def _splits(path: Path) -> bool:
    """Whether a file has a size, is not compressed, and is the same one in every process, as /dev/stdin is not."""
    return path.is_file() and not is_compressed(path) and path.absolute().parts[1] not in ("dev", "proc")


def count_newlines(number: int, part: tuple[Path, int, int, int]) -> list[list[int]]:
    """For the blocks of a part of a file, (path, start, end, bytes of a block), their newlines and the last byte."""
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
    """Where the lines of a file are."""

    def __init__(self, path: Path) -> None:
        self._path, self._ends_in_line = path.absolute(), False
        self._before = [0]  # newlines before each block

    def add(self, counts: Iterable[tuple[int, int]]) -> None:
        """Adds the next blocks, as `count_newlines` counts them."""
        for newlines, last in counts:
            self._before.append(self._before[-1] + newlines)
            self._ends_in_line = last != ord("\n")

    @property
    def lines(self) -> int:
        return self._before[-1] + self._ends_in_line

    def of(self, first: int, count: int) -> Lines:
        """The lines from `first` on, at most so many.

        A line begins behind the newline of the line before it, so reading begins in the block of that newline.
        """
        block = max(0, bisect.bisect_left(self._before, first) - 1)
        skipped = first - self._before[block]
        return Lines(self._path, first, min(first + count, self.lines), block * _BLOCK_BYTES, skipped)


def tagged(pairs: Iterable[Pair], tag: str) -> Iterator[Pair]:
    """Pairs with a tag and a space in front of the source, unless the tag is empty."""
    return ((f"{tag} {source}" if tag else source, reference) for source, reference in pairs)
