"""The preparation steps of one shard of the training text, which can run in separate processes.

A shard is a fixed number of consecutive pairs of the corpus. Each step takes the shard's number and returns its counts.
The files it writes depend only on the text and the settings, and get their names when they are complete.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from t2t_keras.config import DataConfig
from t2t_keras.data.cleaning import Cleaner, HeldOut, Pair, fingerprint, length_reason
from t2t_keras.data.encoded import shard_name, write_encoded
from t2t_keras.data.sources.corpora_files import decoded_line, read_pairs, read_raw_lines
from t2t_keras.machine.files import replacing
from t2t_keras.machine.mapped_files import MappedArray
from t2t_keras.tasks.registry import task
from t2t_keras.text.tokenizer import Tokenizer

Counts = dict[str, int]

VOCABULARY = "vocab.model"
_ENCODE_PAIRS = 20_000

# For each pair that a shard keeps: its fingerprint and whether it was repaired.
_KEY = np.dtype([("key", np.uint64), ("is_repaired", bool)])


@dataclasses.dataclass(frozen=True)
class _OfPreparation:
    """What every step knows: the folder that is being prepared, and the data settings."""

    data_dir: Path
    config: DataConfig


@dataclasses.dataclass(frozen=True)
class Raw(_OfPreparation):
    """A shard's pairs before cleaning.

    Attributes:
        held_out: existing splits that training must not see, unless the task keeps all.
        pairs: source and target sentences.
    """

    held_out: tuple[str, ...]
    pairs: list[Pair]


@dataclasses.dataclass(frozen=True)
class Selection(_OfPreparation):
    """The rows to drop from a cleaned shard.

    Attributes:
        duplicates: rows that occur in an earlier shard, int64.
        validation: rows drawn for the validation set, int64.
        is_drawn: whether a validation set was drawn; pairs that resemble it are then dropped too, unless the task
            keeps all.
    """

    duplicates: np.ndarray
    validation: np.ndarray
    is_drawn: bool


@dataclasses.dataclass(frozen=True)
class Encoding(_OfPreparation):
    """How to encode a split, or one shard of it.

    Attributes:
        split: "train", "valid" or "test".
        shards: number of shards of the split.
        num_threads: number of threads of the tokenizer; -1 for all cores.
    """

    split: str
    shards: int
    num_threads: int


def clean_shard(number: int, raw: Raw) -> Counts:
    """Writes a shard's cleaned text and the keys by which duplicates are found."""
    kind = task(raw.config.task)
    held_out = _held_out(raw.data_dir, raw.config, raw.held_out)
    cleaner = Cleaner(raw.config.lowercase)
    keys: list[tuple[int, bool]] = []

    def kept() -> Iterator[Pair]:
        repaired = 0
        cuts = kind.context is not None or kind.reads_beginnings
        flags = {"cuts_sources": cuts, "keeps_identical": not kind.writes_text, "keeps_repeated": kind.keeps_repeated}
        for pair in cleaner.for_training(raw.pairs, raw.config.max_length, held_out, **flags):
            keys.append((int.from_bytes(fingerprint(pair), "little"), cleaner.counts["repaired"] > repaired))
            repaired = cleaner.counts["repaired"]
            yield pair

    write_text(raw.data_dir, _text_name(number), kept())
    with replacing(keys_path(raw.data_dir, number), "wb") as file:
        np.save(file, np.array(keys, _KEY))
    return cleaner.counts


def read_keys(data_dir: Path, number: int) -> np.ndarray:
    """The keys of the pairs in a cleaned shard, memory-mapped, uint64 [pairs]."""
    return MappedArray(keys_path(data_dir, number))[:]["key"]


def select_shard(number: int, selection: Selection) -> Counts:
    """Writes which rows of a cleaned shard stay; counts dropped pairs by reason, and the repaired among them."""
    keys = np.load(keys_path(selection.data_dir, number))
    stays = np.ones(len(keys), bool)
    stays[selection.duplicates] = False
    held_out_rows = np.zeros(0, np.int64)
    if selection.is_drawn:
        held_out = _held_out(selection.data_dir, selection.config, ("valid",))
        pairs = read_pairs(*text_paths(selection.data_dir, _text_name(number)))
        matching_rows = (row for row, pair in enumerate(pairs) if stays[row] and pair in held_out)
        held_out_rows = np.setdiff1d(np.fromiter(matching_rows, np.int64), selection.validation)
        stays[selection.validation] = False
    stays[held_out_rows] = False
    with replacing(rows_path(selection.data_dir, number), "wb") as file:
        np.save(file, np.flatnonzero(stays))
    return {
        "duplicate": len(selection.duplicates),
        "held_out": len(held_out_rows),
        "validation": len(selection.validation),
        "repaired": int(keys["is_repaired"][~stays].sum()),
    }


def _held_out(data_dir: Path, config: DataConfig, splits: Iterable[str]) -> HeldOut:
    """The sentences of some splits that training must not see: none if the task keeps all."""
    kind = task(config.task)
    held_out = HeldOut(kind.held_out_sides, config.tags)
    for split in () if kind.keeps_repeated else splits:
        held_out.add(read_pairs(*text_paths(data_dir, split)))
    return held_out


def selected_pairs(data_dir: Path, number: int, rows: np.ndarray) -> Iterator[Pair]:
    """Yields some rows of a shard's cleaned text, in order."""
    wanted = np.zeros(int(rows.max(initial=-1)) + 1, bool)
    wanted[rows] = True
    sides = (read_raw_lines(path) for path in text_paths(data_dir, _text_name(number)))
    for source, target in itertools.compress(zip(*sides, strict=False), wanted.tolist()):
        yield decoded_line(source), decoded_line(target)


def encode_shard(number: int, encoding: Encoding) -> Counts:
    """Writes the token ids of a shard of the training text; returns as `encode`."""
    pairs = selected_pairs(encoding.data_dir, number, np.load(rows_path(encoding.data_dir, number)))
    return encode(number, encoding, pairs)


def encode(number: int, encoding: Encoding, pairs: Iterable[Pair]) -> Counts:
    """Writes the token ids of pairs as a shard; counts tokens, pairs kept and, in training data, pairs dropped."""
    tokenizer = Tokenizer.load(encoding.data_dir / VOCABULARY)
    config = encoding.config
    fits = functools.partial(_fits, tokenizer.source, config.max_length)
    sides = (tokenizer.source, tokenizer)
    # Validation and test sets stay whole, unless only beginnings are read: their loss is that of what is translated.
    is_cut = encoding.split == "train" or task(config.task).reads_beginnings
    pairs = targets_of(pairs, config, fits if is_cut else None)
    is_masked = encoding.split == "train" and task(config.task).is_masked  # sources are not kept
    counts = {"kept": 0, "too_long": 0, "length_ratio": 0, "source_tokens": 0, "target_tokens": 0}

    def encoded_pairs() -> Iterator[tuple[list[int], list[int]]]:
        while chunk := list(itertools.islice(pairs, _ENCODE_PAIRS)):
            texts = zip(sides, zip(*chunk, strict=True), strict=True)
            encoded = (side.encode_batch(lines, encoding.num_threads) for side, lines in texts)
            for source, target in zip(*encoded, strict=True):
                lengths = len(source) + 1, len(target) + 1
                reason = length_reason(*lengths, config.max_length, config.max_length_ratio)
                if encoding.split == "train" and reason:
                    counts[reason] += 1
                    continue
                counts["kept"] += 1
                counts["source_tokens"] += lengths[0]
                counts["target_tokens"] += lengths[1]
                yield [] if is_masked else source, target

    name = shard_name(encoding.split, number, encoding.shards)
    write_encoded(encoding.data_dir, name, encoded_pairs(), max(side.vocab_size for side in sides))
    return counts


def targets_of(pairs: Iterable[Pair], config: DataConfig, fits: Callable[[str], bool] | None = None) -> Iterator[Pair]:
    """Yields sources and what a model learns to write for them, from pairs of source and reference.

    With `fits`, which tells whether a source is not too long, it may be several parts of one.
    """
    kind = task(config.task)
    if fits is None:
        return ((source, kind.target(reference)) for source, reference in pairs)
    return itertools.chain.from_iterable(kind.training_pairs(*pair, fits) for pair in pairs)


def _fits(tokenizer: Tokenizer, max_length: int, text: str) -> bool:
    return len(tokenizer.encode(text)) < max_length


def text_paths(data_dir: Path, split: str) -> tuple[Path, Path]:
    """The files of a split's text: source side, target side."""
    return data_dir / f"{split}.source.txt", data_dir / f"{split}.target.txt"


def write_text(data_dir: Path, split: str, pairs: Iterable[Pair]) -> None:
    """Writes the text of a split, one sentence a line."""
    source_path, target_path = text_paths(data_dir, split)
    with replacing(source_path) as source_file, replacing(target_path) as target_file:
        for source, target in pairs:
            source_file.write(source + "\n")
            target_file.write(target + "\n")


def keys_path(data_dir: Path, number: int) -> Path:
    """The file of a shard's keys."""
    return data_dir / f"{_text_name(number)}.keys.npy"


def rows_path(data_dir: Path, number: int) -> Path:
    """The file of the rows of a shard that stay."""
    return data_dir / f"{_text_name(number)}.rows.npy"


def intermediate_paths(data_dir: Path) -> list[Path]:
    """All files of shards that are not needed once the data is prepared."""
    kinds = ("source.txt", "target.txt", "keys.npy", "rows.npy")
    return [path for kind in kinds for path in data_dir.glob(f"train.[0-9]*.{kind}") if "-of-" not in path.name]


def _text_name(number: int) -> str:
    return f"train.{number:05}"
