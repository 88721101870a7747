"""Stores token ids on disk and reads them through memory maps.

Each side of a shard is stored as two arrays: the ids of all sentences, each with its end symbol, and the offsets of the
sentences. A split consists of one shard (`train.source.ids.npy`, ...) or of several consecutive shards
(`train.00003-of-00012.source.ids.npy`, ...).
"""

import itertools
import re
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Self

import numpy as np

from t2t_keras.errors import InputError
from t2t_keras.machine.files import replacing
from t2t_keras.machine.mapped_files import MappedArray, room_for_open_files
from t2t_keras.symbols import EOS_ID, PAD_ID

SIDES = ("source", "target")

_FLUSH_PAIRS = 10_000  # written at once
_CHECKED_IDS = 1 << 22  # read at once for a checksum

# The number of preceding tokens is kept in memory for every 16th sentence; the lengths give it for the others.
_ANCHOR_ROWS = 16

Numbers = np.ndarray | MappedArray
Side = tuple[Numbers, Numbers]


class EncodedCorpus:
    """A split of parallel text as token ids; sources and targets end with the end symbol.

    Args:
        shards: the source side and the target side of each shard. A side is a tuple of ids, uint16 or uint32 [tokens],
            and offsets, int64 [pairs + 1].

    Attributes:
        source_lengths: number of tokens of each source, end symbol included, int32 [pairs].
        target_lengths: number of tokens of each target, end symbol included, int32 [pairs].

    Raises:
        ValueError: the sides have different numbers of sentences, or offsets do not match their ids.
    """

    def __init__(self, shards: Sequence[tuple[Side, Side]]) -> None:
        for source, target in shards:
            if len(source[1]) != len(target[1]):
                raise ValueError(
                    f"source and target must have the same size, got {len(source[1]) - 1} and {len(target[1]) - 1}"
                )
        self._source, self._target = (_Sentences(side) for side in zip(*shards, strict=True))
        self.source_lengths, self.target_lengths = self._source.lengths, self._target.lengths

    @classmethod
    def open(cls, directory: str | Path, split: str) -> "EncodedCorpus":
        """Opens the split "train", "valid" or "test" of a directory; ids stay on disk until they are read.

        Raises:
            InputError: the split or one of its shards is missing, or its files do not match.
        """
        names = _shard_names(directory, split)
        room = room_for_open_files(len(names) * len(SIDES))
        shards = []
        for name in names:
            source, target = (_open_side(directory, name, side, keeps_open=room > 0) for side in SIDES)
            shards.append((source, target))
            room -= len(SIDES)
        try:
            return cls(shards)
        except ValueError as error:
            raise InputError(f"{Path(directory) / split}.*.npy: damaged: {error}") from error

    def __len__(self) -> int:
        return len(self.source_lengths)

    def checksum(self) -> str:
        """Reads all ids and returns their CRC-32, as 8 hexadecimal digits."""
        checksum = 0
        for ids in (*self._source.ids, *self._target.ids):
            for start in range(0, len(ids), _CHECKED_IDS):
                checksum = zlib.crc32(np.asarray(ids[start : start + _CHECKED_IDS]).tobytes(), checksum)
        return f"{checksum:08x}"

    def at(self, epoch: int) -> Self:
        """Returns this corpus, which is the same in every epoch."""
        return self

    def source_ids(self, rows: np.ndarray, length: int | None = None) -> np.ndarray:
        """Returns the source ids of some rows, padded with 0, int32 [rows, length].

        Args:
            rows: row numbers, int [rows].
            length: padded length; None is the length of the longest of these sentences.

        Raises:
            ValueError: a sentence is longer than `length`.
        """
        return self._source.padded(rows, length)

    def target_ids(self, rows: np.ndarray, length: int | None = None) -> np.ndarray:
        """Returns the target ids of some rows; see `source_ids`."""
        return self._target.padded(rows, length)


class _Sentences:
    """One side of a split.

    Args:
        shards: ids and offsets of each shard.

    Attributes:
        ids: ids of each shard.
        lengths: number of tokens of each sentence of all shards, int32 [sentences].
    """

    def __init__(self, shards: Sequence[Side]) -> None:
        self.ids = [ids for ids, _ in shards]
        starts = np.cumsum([0, *(len(offsets) - 1 for _, offsets in shards)])  # --> [shards + 1]
        # Filled shard by shard, because memory may not suffice for two copies.
        self.lengths = np.empty(starts[-1], np.int32)
        for (ids, offsets), begin, end in zip(shards, starts[:-1], starts[1:], strict=True):
            numbers = offsets[:]
            if numbers[0] != 0 or numbers[-1] != len(ids):
                raise ValueError(f"the sentences of a shard do not add up to its {len(ids)} ids")
            self.lengths[begin:end] = np.diff(numbers)
        self._first_tokens = np.cumsum([0, *map(len, self.ids)])  # --> [shards + 1], tokens before each shard
        blocks = self.lengths[: len(self.lengths) // _ANCHOR_ROWS * _ANCHOR_ROWS].reshape(-1, _ANCHOR_ROWS)
        self._anchors = np.concatenate([np.zeros(1, np.int64), np.cumsum(blocks.sum(axis=1, dtype=np.int64))])

    def padded(self, rows: np.ndarray, length: int | None) -> np.ndarray:
        """Returns the sentences of the given rows, int [rows], padded to one length, int32 [rows, length]."""
        rows = np.asarray(rows, np.int64)
        row_lengths = self.lengths[rows]
        longest = int(row_lengths.max(initial=0))
        width = longest if length is None else length
        if width < longest:
            raise ValueError(f"length must be at least the longest sentence's {longest}, got {length}")
        begins = self._begins(rows)  # --> [rows]
        order = np.argsort(begins, kind="stable")  # sorted, so that each shard is read once and in order
        begins, row_lengths = begins[order], row_lengths[order]
        ends = np.zeros(len(rows) + 1, np.int64)  # --> [rows + 1]
        np.cumsum(row_lengths, out=ends[1:])
        positions = np.repeat(begins - ends[:-1], row_lengths) + np.arange(ends[-1])  # --> [tokens]
        tokens = np.empty(len(positions), np.int32)
        first_rows = np.searchsorted(begins, self._first_tokens)  # --> [shards + 1], where shards start in `begins`
        for shard in np.flatnonzero(np.diff(first_rows)).tolist():
            part = slice(ends[first_rows[shard]], ends[first_rows[shard + 1]])
            tokens[part] = self.ids[shard][positions[part] - self._first_tokens[shard]]
        sorted_rows = np.full((len(rows), width), PAD_ID, np.int32)
        sorted_rows[np.arange(width) < row_lengths[:, None]] = tokens
        output = np.empty_like(sorted_rows)
        output[order] = sorted_rows
        return output

    def _begins(self, rows: np.ndarray) -> np.ndarray:
        """Returns the number of tokens before each sentence, including those of earlier shards, int64 [rows]."""
        anchors = rows // _ANCHOR_ROWS
        row_numbers = anchors[:, None] * _ANCHOR_ROWS + np.arange(_ANCHOR_ROWS)  # --> [rows, _ANCHOR_ROWS]
        lengths = self.lengths[np.minimum(row_numbers, rows[:, None])]
        return self._anchors[anchors] + np.where(row_numbers < rows[:, None], lengths, 0).sum(axis=1, dtype=np.int64)


def write_encoded(
    directory: str | Path, split: str, pairs: Iterable[tuple[Sequence[int], Sequence[int]]], vocab_size: int
) -> int:
    """Writes a split or one of its shards for `EncodedCorpus.open`, without holding all ids in memory.

    Args:
        directory: directory of the files.
        split: name of the split, or `shard_name` of a shard.
        pairs: source and target token ids of each pair, without end symbols.
        vocab_size: number of vocabulary entries; ids take 16 bits up to 65,536 entries, and 32 bits above.

    Returns:
        The number of pairs.
    """
    dtype = np.uint16 if vocab_size <= 2**16 else np.uint32
    paths = [_path(directory, split, side, "ids") for side in SIDES]
    lengths: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    with replacing(paths[0], "wb") as source_file, replacing(paths[1], "wb") as target_file:
        files = (source_file, target_file)
        for file in files:
            _write_header(file, 0, dtype)
        remaining = iter(pairs)
        while chunk := list(itertools.islice(remaining, _FLUSH_PAIRS)):
            for side, file in enumerate(files):
                lengths[side].append(_write_sentences(file, [pair[side] for pair in chunk], dtype))
        for side, file in enumerate(files):
            file.seek(0)
            _write_header(file, sum(int(part.sum()) for part in lengths[side]), dtype)
    for side, name in enumerate(SIDES):
        ends = np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths[side]]))  # --> [pairs + 1]
        with replacing(_path(directory, split, name, "offsets"), "wb") as file:
            _write_header(file, len(ends), np.int64)
            file.write(ends.tobytes())
    return len(ends) - 1


# A regular expression that matches the names of all files of `write_encoded`.
ENCODED = r"(train(\.\d{5,}-of-\d{5,})?|valid|test)\.(source|target)\.(ids|offsets)\.npy"


def shard_name(split: str, number: int, count: int) -> str:
    """Returns the name of a shard in file names; a single shard has the name of its split."""
    return split if count == 1 else f"{split}.{number:05}-of-{count:05}"


def _shard_names(directory: str | Path, split: str) -> list[str]:
    """Returns the names of all shards that a split must have, derived from the files on disk."""
    pattern = re.compile(rf"{split}\.\d+-of-(\d+)\.source\.ids\.npy")
    matches = (pattern.fullmatch(path.name) for path in Path(directory).glob(f"{split}.*.source.ids.npy"))
    counts = {int(match[1]) for match in matches if match}
    if len(counts) > 1 or (counts and _path(directory, split, SIDES[0], "ids").exists()):
        raise InputError(f"{directory}: damaged: contains shards of several preparations of {split!r}")
    count = counts.pop() if counts else 1
    return [shard_name(split, number, count) for number in range(count)]


def _path(directory: str | Path, split: str, side: str, kind: str) -> Path:
    return Path(directory) / f"{split}.{side}.{kind}.npy"


def _open_side(directory: str | Path, split: str, side: str, *, keeps_open: bool) -> Side:
    """Opens the ids and offsets of one side of a shard, without reading them."""
    path = _path(directory, split, side, "ids")
    try:
        ids = MappedArray(path, keeps_open=keeps_open)
        path = _path(directory, split, side, "offsets")
        offsets = MappedArray(path)
    except FileNotFoundError as error:
        raise InputError(f"{directory}: contains no prepared split {split!r} ({path.name} is missing)") from error
    except (ValueError, EOFError) as error:
        raise InputError(f"{path}: damaged: {error}") from error
    if len(offsets) == 0 or offsets[-1:] != len(ids):
        raise InputError(f"{path}: damaged: its sentences do not add up to the {len(ids)} ids of the split")
    return ids, offsets


def _write_header(file: IO[bytes], count: int, dtype: type[np.generic]) -> None:
    """Writes the .npy header of a one-dimensional array, in which NumPy reserves space for a larger count."""
    np.lib.format.write_array_header_1_0(
        file, {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": (count,)}
    )


def _write_sentences(file: IO[bytes], sentences: list[Sequence[int]], dtype: type[np.generic]) -> np.ndarray:
    """Appends sentences, each with its end symbol; returns their lengths, int64 [sentences]."""
    lengths = np.fromiter((len(sentence) + 1 for sentence in sentences), np.int64, len(sentences))
    flat = np.full(int(lengths.sum()), EOS_ID, dtype)
    is_token = np.ones(len(flat), bool)
    is_token[np.cumsum(lengths) - 1] = False
    flat[is_token] = np.fromiter(itertools.chain.from_iterable(sentences), np.int64, int(is_token.sum()))
    file.write(flat.tobytes())
    return lengths
