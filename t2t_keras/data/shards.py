"""The preparation steps for a shard of the training text, which can run in separate processes.

A shard is a fixed number of consecutive pairs of the corpus. Each step takes the number of a shard and returns counts.
The files of a step depend only on the text and the settings, and are written atomically.
"""

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
from t2t_keras.text.final_marks import with_final_mark_of
from t2t_keras.text.tokenizer import Tokenizer
from t2t_keras.text.truecase import Truecaser

Counts = dict[str, int]

VOCABULARY = "vocab.model"
SEVERAL_SENTENCES = "several_sentences"
FINAL_MARKS = "final_marks"
_ENCODE_PAIRS = 20_000


def clean_shard(
    data_dir: Path, config: DataConfig, held_out: tuple[str, ...], number: int, pairs: Iterable[Pair]
) -> Counts:
    """Writes the cleaned text of a shard and, for each pair, a key that finds duplicates.

    Args:
        data_dir: directory of the prepared data.
        config: data settings.
        held_out: splits whose sentences are removed.
        number: number of the shard.
        pairs: the pairs of the shard.

    Returns:
        The counts of a `Cleaner`, and the number of sources with several sentences.
    """
    kind = task(config.task)
    exclusions = _held_out(data_dir, config, held_out)
    cleaner = Cleaner(config.lowercase, config.source_language if kind.has_sentences else None)
    keys: list[int] = []

    def clean_pairs() -> Iterator[Pair]:
        cuts = kind.context is not None or kind.reads_beginnings
        flags = {"cuts_sources": cuts, "keeps_identical": not kind.writes_text}
        for pair in cleaner.for_training(pairs, config.max_length, exclusions, **flags):
            keys.append(fingerprint(pair))
            yield pair

    write_text(data_dir, _text_name(number), clean_pairs())
    with replacing(keys_path(data_dir, number), "wb") as file:
        np.save(file, np.array(keys, np.uint64))
    return {**cleaner.counts, SEVERAL_SENTENCES: cleaner.several_sentences}


def read_keys(data_dir: Path, number: int) -> np.ndarray:
    """Returns the keys of the pairs in a cleaned shard, uint64 [pairs]."""
    return MappedArray(keys_path(data_dir, number))[:]


def select_shard(
    data_dir: Path, config: DataConfig, is_drawn: bool, number: int, dropped_rows: tuple[np.ndarray, np.ndarray]
) -> Counts:
    """Writes the selected rows of a cleaned shard.

    Args:
        data_dir: directory of the prepared data.
        config: data settings.
        is_drawn: whether the validation set was drawn from the training text. If so, pairs that resemble one of its
            pairs are dropped too, unless the task keeps repeated pairs.
        number: number of the shard.
        dropped_rows: rows that are duplicates, and rows that were drawn for the validation set, int64 [rows] each.

    Returns:
        The number of dropped pairs by reason.
    """
    duplicates, validation = dropped_rows
    is_selected = np.ones(len(read_keys(data_dir, number)), bool)
    is_selected[duplicates] = False
    held_out_rows = np.zeros(0, np.int64)
    if is_drawn:
        held_out = _held_out(data_dir, config, ("valid",))
        pairs = read_pairs(*text_paths(data_dir, _text_name(number)))
        matching_rows = (row for row, pair in enumerate(pairs) if is_selected[row] and pair in held_out)
        held_out_rows = np.setdiff1d(np.fromiter(matching_rows, np.int64), validation)
        is_selected[validation] = False
    is_selected[held_out_rows] = False
    with replacing(rows_path(data_dir, number), "wb") as file:
        np.save(file, np.flatnonzero(is_selected))
    return {"duplicate": len(duplicates), "held_out": len(held_out_rows), "validation": len(validation)}


def _held_out(data_dir: Path, config: DataConfig, splits: Iterable[str]) -> HeldOut:
    """Returns the held-out sentences of some splits; none if the task keeps repeated pairs."""
    kind = task(config.task)
    held_out = HeldOut(kind.held_out_sides, config.tags)
    for split in () if kind.keeps_repeated else splits:
        held_out.add(read_pairs(*text_paths(data_dir, split)))
    return held_out


def selected_pairs(data_dir: Path, number: int, rows: np.ndarray) -> Iterator[Pair]:
    """Yields the given rows of the cleaned text of a shard, in the order of the text."""
    is_selected = np.zeros(int(rows.max(initial=-1)) + 1, bool)
    is_selected[rows] = True
    sides = (read_raw_lines(path) for path in text_paths(data_dir, _text_name(number)))
    for source, target in itertools.compress(zip(*sides, strict=False), is_selected.tolist()):
        yield decoded_line(source), decoded_line(target)


def encode_shard(data_dir: Path, config: DataConfig, num_threads: int, number: int, count: int) -> Counts:
    """Writes the token ids of shard `number` of `count` of the training text; returns counts as `encode` does."""
    pairs = selected_pairs(data_dir, number, np.load(rows_path(data_dir, number)))
    return encode(data_dir, config, "train", pairs, (number, count), num_threads)


def encode(
    data_dir: Path,
    config: DataConfig,
    split: str,
    pairs: Iterable[Pair],
    place: tuple[int, int] = (0, 1),
    num_threads: int = -1,
) -> Counts:
    """Writes the token ids of a split, or of one of its shards.

    Args:
        data_dir: directory of the prepared data.
        config: data settings.
        split: name of the split.
        pairs: source and reference of each pair.
        place: number of the shard, from 0, and number of shards.
        num_threads: threads of the tokenizer; -1 uses all cores.

    Returns:
        The number of tokens on each side, of pairs kept and of pairs dropped for each reason (0 except in training
        data), and with `config.final_marks`, the number of training pairs whose final marks changed.
    """
    tokenizer = Tokenizer.load(data_dir / VOCABULARY)
    sides = (tokenizer.source, tokenizer)
    counts = {"kept": 0, "too_long": 0, "length_ratio": 0, "source_tokens": 0, "target_tokens": 0}
    if split == "train":
        pairs = with_final_marks(pairs, config, counts)
    # Sources of validation and test sets are not split, because their loss must cover the whole text. They are
    # truncated if the task reads only beginnings.
    is_cut = split == "train" or task(config.task).reads_beginnings
    fits = (lambda text: len(tokenizer.source.encode(text)) < config.max_length) if is_cut else None
    pairs = targets_of(pairs, config, tokenizer.truecaser, fits)
    is_masked = split == "train" and task(config.task).is_masked  # `MaskedCorpus` makes the sources

    def encoded_pairs() -> Iterator[tuple[list[int], list[int]]]:
        while chunk := list(itertools.islice(pairs, _ENCODE_PAIRS)):
            texts = zip(sides, zip(*chunk, strict=True), strict=True)
            ids = (side.encode_batch(lines, num_threads) for side, lines in texts)
            for source, target in zip(*ids, strict=True):
                lengths = len(source) + 1, len(target) + 1
                reason = length_reason(*lengths, config.max_length, config.max_length_ratio)
                if split == "train" and reason:
                    counts[reason] += 1
                    continue
                counts["kept"] += 1
                counts["source_tokens"] += lengths[0]
                counts["target_tokens"] += lengths[1]
                yield [] if is_masked else source, target

    write_encoded(data_dir, shard_name(split, *place), encoded_pairs(), max(side.vocab_size for side in sides))
    return counts


def with_final_marks(pairs: Iterable[Pair], config: DataConfig, counts: Counts) -> Iterator[Pair]:
    """Yields training pairs, whose targets get the final marks of their sources if the settings say so.

    Args:
        pairs: pairs of source and reference.
        config: data settings.
        counts: the number of changed pairs is added to its entry `FINAL_MARKS`.
    """
    if not config.final_marks:
        yield from pairs
        return
    counts.setdefault(FINAL_MARKS, 0)
    for source, target in pairs:
        new_target = with_final_mark_of(source, target, config.target_language)
        counts[FINAL_MARKS] += new_target != target
        yield source, new_target


def targets_of(
    pairs: Iterable[Pair],
    config: DataConfig,
    truecaser: Truecaser | None = None,
    fits: Callable[[str], bool] | None = None,
) -> Iterator[Pair]:
    """Converts pairs of source and reference to pairs of source and target, the text that a model learns to write.

    Args:
        pairs: pairs of source and reference.
        config: data settings.
        truecaser: truecases the targets; None leaves them as they are.
        fits: returns whether a source is short enough. If given, a source that is too long may be split into several
            pairs or truncated.
    """
    kind = task(config.task)
    if fits is None:
        examples: Iterator[Pair] = ((source, kind.target(source, reference)) for source, reference in pairs)
    else:
        examples = itertools.chain.from_iterable(kind.training_pairs(*pair, fits) for pair in pairs)
    return examples if truecaser is None else ((source, truecaser.truecased(target)) for source, target in examples)


def text_paths(data_dir: Path, split: str) -> tuple[Path, Path]:
    """Returns the paths of the source text and the target text of a split."""
    return data_dir / f"{split}.source.txt", data_dir / f"{split}.target.txt"


def write_text(data_dir: Path, split: str, pairs: Iterable[Pair]) -> None:
    """Writes the text of a split, one source or target per line."""
    source_path, target_path = text_paths(data_dir, split)
    with replacing(source_path) as source_file, replacing(target_path) as target_file:
        for source, target in pairs:
            source_file.write(source + "\n")
            target_file.write(target + "\n")


def keys_path(data_dir: Path, number: int) -> Path:
    """Returns the path of the keys of a shard."""
    return data_dir / f"{_text_name(number)}.keys.npy"


def rows_path(data_dir: Path, number: int) -> Path:
    """Returns the path of the selected rows of a shard."""
    return data_dir / f"{_text_name(number)}.rows.npy"


# A regular expression that matches the names of shard files that are not needed after the preparation.
INTERMEDIATE = r"train\.\d{5,}\.((source|target)\.txt|(keys|rows)\.npy)"


def _text_name(number: int) -> str:
    return f"train.{number:05}"
