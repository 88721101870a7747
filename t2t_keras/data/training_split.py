"""Prepares the training split shard by shard: cleaning, removal of duplicates and validation pairs, and encoding.

The output depends only on the text and the settings, not on the number of processes or on interruptions. The shard size
only changes how the pairs are divided among files.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tqdm

from t2t_keras.config import DataConfig
from t2t_keras.data import shards
from t2t_keras.data.cleaning import REASONS, Pair
from t2t_keras.data.encoded import EncodedCorpus, shard_name
from t2t_keras.data.journal import Journal
from t2t_keras.data.output_limit import Lengths
from t2t_keras.data.shards import Counts
from t2t_keras.data.sources.corpora import Corpus
from t2t_keras.data.sources.parallel_files import PairsOfLines, ParallelFiles, split
from t2t_keras.errors import InputError
from t2t_keras.machine.processes import Processes, Workers
from t2t_keras.tasks.registry import task
from t2t_keras.text.truecase import Truecaser

# A validation set drawn from the training pairs has 1% of them, but at most this many.
_DRAWN_VALIDATION_PAIRS = 1000

# Number of keys that are sorted at once, which takes a few gigabytes of memory.
_SORTED_KEYS = 1 << 27
_KEY_BITS = 64

ReadKeys = Callable[[int], np.ndarray]

_READING = "reading"  # journal step that holds the number of shards


class TrainingSplit:
    """Prepares the training split in shards of `shard_pairs` pairs; skips the steps that are done in the journal."""

    def __init__(
        self, data_dir: Path, config: DataConfig, journal: Journal, workers: Workers, shard_pairs: int
    ) -> None:
        self._data_dir, self._config, self._journal = data_dir, config, journal
        self._place = data_dir.absolute(), config  # first arguments of the functions in `shards`
        self._workers, self._shard_pairs = workers, shard_pairs

    def clean(self, corpus: Corpus, held_out: tuple[str, ...]) -> Counts:
        """Writes the cleaned text of all shards without pairs that resemble a `held_out` split; returns the counts."""
        if _READING not in self._journal.done:
            clean = functools.partial(shards.clean_shard, *self._place, held_out)
            files = [part for part in corpus.training_parts if isinstance(part, ParallelFiles) and part.is_splittable]
            if len(files) == len(corpus.training_parts):
                parts = self._clean_blocks(clean, self._blocks(files))
            else:
                parts = self._clean_here(clean, corpus)
            provenance = dict(corpus.provenance())
            self._journal.add(_READING, {"shards": sum(parts), "parts": parts, "provenance": provenance})
        names = ("read", "kept", "repaired", *REASONS)
        results = [{name: counts[name] for name in names} for counts in self._results("cleaning")]
        return _sum_counts(dict.fromkeys(names, 0), results)

    def _blocks(self, files: Sequence[ParallelFiles]) -> list[list[PairsOfLines]]:
        """Returns the pairs of each shard of each corpus; the workers read them themselves."""

        def run_all(function: Callable[..., Any], jobs: Sequence[tuple[int, Any]]) -> dict[int, Any]:
            # If no file needs several jobs, starting processes would take longer than counting.
            workers = self._workers if len(jobs) > 2 * len(files) else Processes(1)
            with contextlib.closing(workers.run(function, jobs)) as results:
                return dict(results)

        return split(files, self._shard_pairs, run_all)

    def _clean_blocks(self, clean: Callable[..., Any], blocks: list[list[PairsOfLines]]) -> list[int]:
        """Cleans blocks of pairs, which the jobs read themselves; returns the number of shards of each corpus."""
        numbered = enumerate(itertools.chain.from_iterable(blocks))
        jobs = [(number, pairs) for number, pairs in numbered if f"cleaning {number}" not in self._journal.done]
        self._run("cleaning", clean, _progress(jobs, "cleaning", len(jobs), " shards"), self._workers)
        return list(map(len, blocks))

    def _clean_here(self, clean: Callable[..., Any], corpus: Corpus) -> list[int]:
        """Reads all pairs and sends them to processes for cleaning; returns the number of shards of each corpus."""
        parts = [0] * len(corpus.training_parts)

        def jobs() -> Iterator[tuple[int, list[Pair]]]:
            for part, read in enumerate(corpus.training_parts):
                remaining = iter(_progress(read(), "cleaning"))
                while block := list(itertools.islice(remaining, self._shard_pairs)):
                    number = sum(parts)
                    parts[part] += 1
                    if f"cleaning {number}" not in self._journal.done:
                        yield number, block

        self._run("cleaning", clean, jobs(), self._workers.here)
        return parts

    def select(self, counts: Counts, draw: bool) -> Counts:
        """Selects the rows to train on, without duplicates and pairs that resemble a drawn validation set.

        If the task keeps repeated pairs, only the rows drawn for "valid" are dropped.

        Args:
            counts: counts of the cleaned text.
            draw: whether to draw the split "valid" and write its text.

        Returns:
            The counts, updated with the dropped pairs.

        Raises:
            InputError: there are too few pairs to draw from.
        """
        names = [f"selecting {number}" for number in range(self._count)]
        if not names or not all(name in self._journal.done for name in names):
            sizes = [cleaned["kept"] for cleaned in self._results("cleaning")]
            duplicates = [np.zeros(0, np.int64)] * self._count
            if not task(self._config.task).keeps_repeated:
                duplicates = repeated_rows(sizes, functools.partial(shards.read_keys, self._data_dir))
            num_pairs = counts["kept"] - sum(map(len, duplicates))
            draws = self._draw(num_pairs, counts, duplicates) if draw else [np.zeros(0, np.int64)] * self._count
            rows_of_shards = enumerate(zip(duplicates, draws, strict=True))
            jobs = ((number, rows) for number, rows in rows_of_shards if names[number] not in self._journal.done)
            select = functools.partial(shards.select_shard, *self._place, draw)
            # If no set is drawn, no text is read, and starting processes would take longer than the work.
            self._run("selecting", select, jobs, self._workers if draw else Processes(1))
        for drops in self._results("selecting"):
            for reason in ("duplicate", "held_out", "validation"):
                counts[reason] += drops[reason]
                counts["kept"] -= drops[reason]
        return counts

    def sentences(self, step: int, sides: Sequence[int] = (0, 1), truecaser: Truecaser | None = None) -> Iterator[str]:
        """Yields the given sides (0 is the source, 1 the target) of every `step`-th pair to learn from.

        `truecaser` truecases the targets; None leaves them as they are.
        """
        offset = 0
        for number in range(self._count):
            rows = np.load(shards.rows_path(self._data_dir, number))
            pairs = shards.selected_pairs(self._data_dir, number, rows[-offset % step :: step])
            pairs = shards.with_final_marks(pairs, self._config, {})
            for pair in shards.targets_of(pairs, self._config, truecaser):
                yield from (pair[side] for side in sides)
            offset += len(rows)

    def references(self) -> Iterator[str]:
        """Yields the references of all selected pairs."""
        for number in range(self._count):
            rows = np.load(shards.rows_path(self._data_dir, number))
            for _, reference in shards.selected_pairs(self._data_dir, number, rows):
                yield reference

    def encode(self, counts: Counts) -> Counts:
        """Writes the token ids of all shards; returns the counts, updated with the tokens and the dropped pairs."""
        threads = 1 if self._workers.is_parallel and self._count > 1 else -1
        encode = functools.partial(shards.encode_shard, *self._place, threads)
        names = (f"encoding train {number}" for number in range(self._count))
        jobs = [(number, self._count) for number, name in enumerate(names) if name not in self._journal.done]
        self._run("encoding train", encode, _progress(jobs, "encoding train", len(jobs), " shards"), self._workers)
        mark_counts = {shards.FINAL_MARKS: 0} if self._config.final_marks else {}
        counts = {**counts, "kept": 0, "source_tokens": 0, "target_tokens": 0, **mark_counts}
        return _sum_counts(counts, self._results("encoding train"))

    @property
    def share_of_several(self) -> float:
        """The share of cleaned pairs whose sources have several sentences; available after cleaning."""
        results = self._results("cleaning")
        count, total = (sum(counts.get(name, 0) for counts in results) for name in (shards.SEVERAL_SENTENCES, "kept"))
        return count / max(total, 1)

    @property
    def part_sizes(self) -> list[int]:
        """The number of encoded pairs of each corpus; available after encoding."""
        sizes = [counts["kept"] for counts in self._results("encoding train")]
        return [sum(sizes[number] for number in numbers) for numbers in self._parts]

    def lengths(self) -> Iterator[Iterable[Lengths]]:
        """Yields an iterator for each corpus, over the pair lengths of its shards; available after encoding."""
        return (map(self._lengths, numbers) for numbers in self._parts)

    @property
    def provenance(self) -> dict[str, Any]:
        """Where the text came from; available after cleaning."""
        return self._journal.done[_READING]["provenance"]

    @property
    def _count(self) -> int:
        return self._journal.done[_READING]["shards"]

    @property
    def _parts(self) -> list[range]:
        """The shard numbers of each corpus."""
        ends = itertools.accumulate(self._journal.done[_READING]["parts"], initial=0)
        return list(itertools.starmap(range, itertools.pairwise(ends)))

    def _lengths(self, number: int) -> Lengths:
        shard = EncodedCorpus.open(self._data_dir, shard_name("train", number, self._count))
        return shard.source_lengths, shard.target_lengths

    def _draw(self, num_pairs: int, counts: Counts, duplicates: list[np.ndarray]) -> list[np.ndarray]:
        """Writes a random sample of the remaining pairs as the split "valid"; returns its rows in each shard."""
        size = min(_DRAWN_VALIDATION_PAIRS, max(1, num_pairs // 100))
        if num_pairs <= size:
            raise InputError(f"too few training pairs to draw a validation set from: {summary(counts)}")
        choices = np.sort(np.random.default_rng(self._config.seed).choice(num_pairs, size, replace=False))
        validation_rows, offset = [], 0
        for number, shard_duplicates in enumerate(duplicates):
            remaining = np.delete(np.arange(self._journal.done[f"cleaning {number}"]["kept"]), shard_duplicates)
            shard_choices = choices[(choices >= offset) & (choices < offset + len(remaining))]
            validation_rows.append(remaining[shard_choices - offset])
            offset += len(remaining)
        if task(self._config.task).has_known_labels:
            validation_rows = self._keep_known_labels(duplicates, validation_rows)
            if not any(map(len, validation_rows)):
                raise InputError("no validation set can be drawn, because every label is too rare; give --valid_source")
        numbered = enumerate(validation_rows)
        sample = (pair for number, rows in numbered for pair in shards.selected_pairs(self._data_dir, number, rows))
        shards.write_text(self._data_dir, "valid", sample)
        return validation_rows

    def _keep_known_labels(self, duplicates: list[np.ndarray], validation_rows: list[np.ndarray]) -> list[np.ndarray]:
        """Returns the drawn rows whose labels all occur in rows that remain for training."""
        symbols_of, labels = task(self._config.task).symbols, set[str]()
        for number, rows in enumerate(validation_rows):
            all_rows = np.arange(self._journal.done[f"cleaning {number}"]["kept"])
            rest = np.delete(all_rows, np.concatenate([duplicates[number], rows]).astype(int))
            labels.update(symbols_of(reference for _, reference in shards.selected_pairs(self._data_dir, number, rest)))
        result = []
        for number, rows in enumerate(validation_rows):
            pairs = shards.selected_pairs(self._data_dir, number, rows)
            result.append(rows[np.array([labels.issuperset(symbols_of([reference])) for _, reference in pairs], bool)])
        return result

    def _run(self, step: str, function: Callable[..., Any], jobs: Iterable[tuple[int, Any]], workers: Workers) -> None:
        """Runs a step for the given shards and records each result in the journal."""
        with contextlib.closing(workers.run(function, jobs)) as results:
            for number, result in results:
                self._journal.add(f"{step} {number}", result)

    def _results(self, step: str) -> list[Counts]:
        return [self._journal.done[f"{step} {number}"] for number in range(self._count)]


def summary(counts: Counts) -> str:
    """Formats the counts that are not 0, and the number of pairs read, as text."""
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count or name == "read")


def _sum_counts(start: Counts, counts: Iterable[Counts]) -> Counts:
    """Returns the sum of `start` and all `counts`, by name."""
    total = dict(start)
    for addends in counts:
        for name, count in addends.items():
            total[name] += count
    return total


def _progress(items: Iterable[Any], description: str, total: int | None = None, unit: str = " pairs") -> Iterable[Any]:
    """Wraps an iterable with a progress bar, which is shown on a terminal only."""
    return tqdm.tqdm(items, description, total, unit=unit, unit_scale=True, disable=None, leave=False)


def repeated_rows(sizes: Sequence[int], read_keys: ReadKeys, sorted_keys: int = _SORTED_KEYS) -> list[np.ndarray]:
    """Finds the rows whose key occurs in an earlier row of the same or an earlier shard.

    Args:
        sizes: number of rows in each shard.
        read_keys: returns the keys of the shard of a number, uint64 [rows].
        sorted_keys: approximate number of keys in memory; if there are more, the shards are read several times.

    Returns:
        The repeated rows of each shard, int64 [repeated rows], in increasing order.
    """
    starts = np.cumsum([0, *sizes])  # --> [shards + 1]
    bits = max(0, int(starts[-1] - 1) // sorted_keys).bit_length()
    parts = [_find_repeated(starts, read_keys, bits, part) for part in range(1 << bits)]
    duplicates = np.sort(np.concatenate(parts))
    bounds = np.searchsorted(duplicates, starts)
    return [duplicates[bounds[i] : bounds[i + 1]] - starts[i] for i in range(len(sizes))]


def _find_repeated(starts: np.ndarray, read_keys: ReadKeys, bits: int, part: int) -> np.ndarray:
    """Returns the repeated rows, numbered across all shards, among the keys whose first `bits` bits are `part`."""
    keys, rows = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    for number, start in enumerate(starts[:-1]):
        shard = read_keys(number)
        is_in_part = shard >> np.uint64(_KEY_BITS - bits) == part if bits else np.ones(len(shard), bool)
        keys.append(shard[is_in_part])
        rows.append(start + np.flatnonzero(is_in_part))
    key, row = np.concatenate(keys), np.concatenate(rows)
    order = np.argsort(key, kind="stable")  # stable, so that the earliest of equal keys comes first
    key = key[order]
    return row[order[1:][key[1:] == key[:-1]]]
