"""Corpora -> cleaning -> tokenizer -> encoded: a folder that training can start from.

The folder's `data.json` is written last. Until then `preparing.json` records the
settings and what is done, so that an interrupted preparation goes on where it
stopped, and is never taken for a complete one.
"""

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tqdm

from t2t_keras.config import Config, DataConfig
from t2t_keras.data.cleaning import Cleaner, HeldOut, Pair, length_reason
from t2t_keras.data.corpora import SPLITS, Corpus
from t2t_keras.data.corpora_files import read_lines, read_pairs
from t2t_keras.data.encoded import EncodedCorpus, write_encoded
from t2t_keras.data.tokenizer import Tokenizer, train_tokenizer
from t2t_keras.data.writing import replacing
from t2t_keras.errors import InputError

# Beyond some millions of sentences a vocabulary no longer changes, but its training takes hours.
_VOCABULARY_SENTENCES = 4_000_000
# A validation set drawn from the training pairs: one in a hundred, at most this many.
_DRAWN_VALIDATION_PAIRS = 1000
_ENCODE_PAIRS = 20_000

_COMPLETE = "data.json"
_JOURNAL = "preparing.json"
_VOCABULARY = "vocab.model"

Counts = dict[str, int]


class PreparedData:
    """A folder of prepared data.

    Attributes:
        directory: the folder.
        config: the settings it was prepared with.
        counts: by split, what cleaning read, repaired, kept and dropped.
        provenance: where the text was found.
    """

    def __init__(self, directory: str | Path, record: Mapping[str, Any]) -> None:
        self.directory = Path(directory)
        self.config = Config.from_dict({"data": record["config"]}).data
        self.counts: dict[str, Counts] = record["counts"]
        self.provenance: Mapping[str, Any] = record["provenance"]

    @classmethod
    def open(cls, data_dir: str | Path) -> "PreparedData":
        """The prepared data of a folder.

        Raises:
            InputError: the folder holds none, or its preparation was interrupted.
        """
        record = _read_json(Path(data_dir) / _COMPLETE)
        if record is not None:
            return cls(data_dir, record)
        if (Path(data_dir) / _JOURNAL).exists():
            raise InputError(
                f"{data_dir}: its preparation was interrupted; run launch.prepare_data again with the same settings"
            )
        raise InputError(f"{data_dir}: no prepared data here ({_COMPLETE} is missing); run launch.prepare_data")

    @property
    def vocab_path(self) -> Path:
        """The SentencePiece model's file."""
        return self.directory / _VOCABULARY

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, loaded anew."""
        return Tokenizer.load(self.vocab_path)

    @property
    def splits(self) -> list[str]:
        """The splits there are: "train", "valid" and perhaps "test"."""
        return [split for split in SPLITS if split in self.counts]

    def split(self, name: str) -> EncodedCorpus:
        """The token ids of a split.

        Raises:
            InputError: there is no such split.
        """
        self._check_split(name, self.splits)
        return EncodedCorpus.open(self.directory, name)

    def text(self, split: str) -> tuple[list[str], list[str]]:
        """The sentences of "valid" or "test": source side, target side.

        Raises:
            InputError: there is no such split, or it is "train", whose text is not kept.
        """
        self._check_split(split, [name for name in self.splits if name != "train"])
        source_path, target_path = _text_paths(self.directory, split)
        return list(read_lines(source_path)), list(read_lines(target_path))

    def _check_split(self, split: str, valid: list[str]) -> None:
        if split not in valid:
            raise InputError(f"{self.directory}: has no split {split!r} to read; valid: {', '.join(valid)}")


def prepare(
    corpus: Corpus, config: DataConfig, data_dir: str | Path, report: Callable[[str], None] = print
) -> PreparedData:
    """Makes a folder of prepared data, or opens it if it is there already.

    Args:
        corpus: parallel text; without a "valid" split, one is drawn from "train".
        config: the settings.
        data_dir: the folder, made as needed.
        report: takes a line of text whenever a step begins.

    Returns:
        The prepared data.

    Raises:
        InputError: the text or the settings are at fault, or the folder holds data
            prepared with other settings.
        OSError: a file cannot be written, for example because the disk is full.
    """
    data_dir = Path(data_dir)
    settings = {**dataclasses.asdict(config), **corpus.identity}
    if (record := _read_json(data_dir / _COMPLETE)) is not None:
        _check_same_settings(data_dir, {**record["config"], **record["identity"]}, settings)
        report(f"{data_dir}: already prepared")
        return PreparedData(data_dir, record)

    data_dir.mkdir(parents=True, exist_ok=True)
    journal = _Journal(data_dir, settings)
    if journal.done:
        report(f"{data_dir}: going on after an interruption; done before: {', '.join(journal.done)}")
    cleaned = journal.step("cleaning", lambda: _clean(corpus, config, data_dir, report))
    counts: dict[str, Counts] = cleaned["counts"]
    journal.step("vocabulary", lambda: _train_vocabulary(config, data_dir, counts["train"]["kept"], report))
    tokenizer = Tokenizer.load(data_dir / _VOCABULARY)
    for split in counts:
        counts[split] = journal.step(
            f"encoding {split}", lambda split=split: _encode(config, data_dir, split, tokenizer, counts[split], report)
        )
    record = {
        "config": dataclasses.asdict(config),
        "identity": dict(corpus.identity),
        "provenance": cleaned["provenance"],
        "counts": counts,
    }
    _write_json(data_dir / _COMPLETE, record)
    for path in (*_text_paths(data_dir, "train"), data_dir / _JOURNAL):
        path.unlink(missing_ok=True)
    return PreparedData(data_dir, record)


class _Journal:
    """What a preparation has done so far; begins anew when the settings are others."""

    def __init__(self, data_dir: Path, settings: Mapping[str, Any]) -> None:
        self._path = data_dir / _JOURNAL
        self._entries = _read_json(self._path) or {}
        if self._entries.get("settings") != settings:
            self._entries = {"settings": settings, "done": {}}

    @property
    def done(self) -> list[str]:
        """The names of the steps that are done."""
        return list(self._entries["done"])

    def step(self, name: str, work: Callable[[], Any]) -> Any:
        """The result of a step (plain values), which is run unless it is done."""
        done = self._entries["done"]
        if name not in done:
            done[name] = work()
            _write_json(self._path, self._entries)
        return done[name]


def _clean(corpus: Corpus, config: DataConfig, data_dir: Path, report: Callable[[str], None]) -> dict[str, Any]:
    """Writes the text of all splits; gives what was counted by split, and where the text was found."""
    counts: dict[str, Counts] = {}
    held_out = HeldOut()
    for split in ("valid", "test"):
        if split in corpus.splits:
            cleaner = Cleaner(config.lowercase)
            pairs = list(cleaner.for_evaluation(corpus.splits[split]()))
            if not pairs:
                raise InputError(f"the {split} split is empty")
            held_out.add(pairs)
            _write_text(data_dir, split, pairs)
            counts[split] = cleaner.counts
    report("reading and cleaning the training text")
    cleaner = Cleaner(config.lowercase)
    pairs = cleaner.for_training(_progress(corpus.splits["train"](), "cleaning"), config.max_length, held_out)
    _write_text(data_dir, "train", pairs)
    counts["train"] = cleaner.counts
    if "valid" not in corpus.splits:
        counts["valid"] = _draw_validation(config, data_dir, cleaner.counts)
    if not cleaner.counts["kept"]:
        raise InputError(f"no training pair is left after cleaning: {_summary(cleaner.counts)}")
    return {
        "counts": {split: counts[split] for split in SPLITS if split in counts},
        "provenance": dict(corpus.provenance()),
    }


def _draw_validation(config: DataConfig, data_dir: Path, counts: Counts) -> Counts:
    """Moves a random sample of the cleaned training pairs to "valid", and drops what resembles it from "train"."""
    kept = counts["kept"]
    size = min(_DRAWN_VALIDATION_PAIRS, max(1, kept // 100))
    if kept <= size:
        raise InputError(f"too few training pairs to draw a validation set from: {_summary(counts)}")
    drawn = set(np.random.default_rng(config.seed).choice(kept, size, replace=False).tolist())
    training = list(_text_paths(data_dir, "train"))
    sample = [pair for row, pair in enumerate(read_pairs(*training)) if row in drawn]
    _write_text(data_dir, "valid", sample)
    held_out = HeldOut()
    held_out.add(sample)

    def remaining() -> Iterator[Pair]:
        for row, pair in enumerate(read_pairs(*training)):
            if pair in held_out:
                counts["kept"] -= 1
                counts["validation" if row in drawn else "held_out"] += 1
            else:
                yield pair

    _write_text(data_dir, "train", remaining())
    return {"read": size, "kept": size, "repaired": 0}


def _train_vocabulary(config: DataConfig, data_dir: Path, pairs: int, report: Callable[[str], None]) -> int:
    """Trains on the training text, evenly thinned out if there is very much; gives the sentences used."""
    step = -(-2 * pairs // _VOCABULARY_SENTENCES)
    report(f"training a vocabulary of {config.vocab_size} entries")
    used = 0

    def sentences() -> Iterator[str]:
        nonlocal used
        for pair in itertools.islice(read_pairs(*_text_paths(data_dir, "train")), 0, None, step):
            used += len(pair)
            yield from pair

    train_tokenizer(sentences(), config.vocab_size, data_dir / _VOCABULARY, config.lowercase)
    return used


def _encode(
    config: DataConfig, data_dir: Path, split: str, tokenizer: Tokenizer, counts: Counts, report: Callable[[str], None]
) -> Counts:
    """Writes a split's token ids, and gives its counts with what encoding adds to them."""
    report(f"encoding {split}")
    counts = {**counts, "source_tokens": 0, "target_tokens": 0}

    def encoded_pairs() -> Iterator[tuple[list[int], list[int]]]:
        pairs = iter(_progress(read_pairs(*_text_paths(data_dir, split)), f"encoding {split}", counts["kept"]))
        while chunk := list(itertools.islice(pairs, _ENCODE_PAIRS)):
            sources, targets = (tokenizer.encode_batch(side) for side in zip(*chunk, strict=True))
            for source, target in zip(sources, targets, strict=True):
                lengths = len(source) + 1, len(target) + 1
                reason = length_reason(*lengths, config.max_length, config.max_length_ratio)
                if split == "train" and reason:
                    counts["kept"] -= 1
                    counts[reason] += 1
                    continue
                counts["source_tokens"] += lengths[0]
                counts["target_tokens"] += lengths[1]
                yield source, target

    write_encoded(data_dir, split, encoded_pairs(), tokenizer.vocab_size)
    if not counts["kept"]:
        raise InputError(f"no {split} pair is left after encoding: {_summary(counts)}")
    return counts


def _check_same_settings(data_dir: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    keys = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    if keys:
        changes = ", ".join(f"{key}: {_short(old.get(key))} -> {_short(new.get(key))}" for key in keys)
        raise InputError(f"{data_dir}: already prepared with other settings ({changes}); give another --data_dir")


def _short(value: Any) -> str:
    """A setting for a message; of a checksum, the beginning."""
    return f"{value[:12]}..." if isinstance(value, str) and len(value) > 40 else repr(value)


def _summary(counts: Counts) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count or name == "read")


def _progress(pairs: Iterable[Pair], description: str, total: int | None = None) -> Iterable[Pair]:
    """A progress bar on a terminal; nothing elsewhere."""
    return tqdm.tqdm(pairs, description, total, unit=" pairs", unit_scale=True, disable=None, leave=False)


def _text_paths(data_dir: Path, split: str) -> tuple[Path, Path]:
    return data_dir / f"{split}.source.txt", data_dir / f"{split}.target.txt"


def _write_text(data_dir: Path, split: str, pairs: Iterable[Pair]) -> None:
    source_path, target_path = _text_paths(data_dir, split)
    with replacing(source_path) as source_file, replacing(target_path) as target_file:
        for source, target in pairs:
            source_file.write(source + "\n")
            target_file.write(target + "\n")


def _read_json(path: Path) -> dict[str, Any] | None:
    """The contents of a JSON file; None if there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise InputError(f"{path}: damaged: {error}") from error


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    with replacing(path) as file:
        json.dump(values, file, indent=1, ensure_ascii=False)
        file.write("\n")
