"""Cleans a corpus, trains the tokenizer, and writes the encoded text to a directory for training.

`data.json` is written last. Until then, `preparing.json` records the settings and the completed steps, so that an
interrupted preparation resumes where it stopped and is never mistaken for a complete one.
"""

import dataclasses
import functools
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from t2t_keras.config import Config, DataConfig, DecodeConfig
from t2t_keras.data.checksums import changes, checksums
from t2t_keras.data.cleaning import Cleaner
from t2t_keras.data.encoded import ENCODED, EncodedCorpus
from t2t_keras.data.journal import Journal
from t2t_keras.data.output_limit import output_limit
from t2t_keras.data.shards import INTERMEDIATE, VOCABULARY, Counts, encode, text_paths, write_text
from t2t_keras.data.sources.corpora import SPLITS, Corpus
from t2t_keras.data.sources.corpora_files import read_pairs
from t2t_keras.data.training_split import TrainingSplit, summary
from t2t_keras.errors import InputError
from t2t_keras.machine.files import local_path, read_json, write_json
from t2t_keras.machine.locking import locked
from t2t_keras.machine.processes import Processes, Workers
from t2t_keras.tasks.labels import of_symbol
from t2t_keras.tasks.registry import task
from t2t_keras.text.characters import Characters
from t2t_keras.text.extension import with_entries_of, with_pieces, with_symbols
from t2t_keras.text.repair import lowercased
from t2t_keras.text.tokenizer import Tokenizer, trained_tokenizer, vocabulary_files
from t2t_keras.text.truecase import Truecaser

# Pairs in a shard, which one process handles at a time, with about 0.1 GB of memory.
SHARD_PAIRS = 250_000

# More sentences hardly change a vocabulary, but training it would take hours.
_VOCABULARY_SENTENCES = 4_000_000

# If at least this share of the sources have several sentences, models translate whole lines, else single sentences.
# Corpora are far from the threshold: 0.0 % of the sources have several sentences in Multi30k, 1.1 % in Tatoeba, 7 % in
# the text of the quickstart, and nearly 100 % in a corpus of documents.
_SEVERAL_IN_LINES = 0.5

_COMPLETE = "data.json"
_JOURNAL = "preparing.json"
_CHECKSUMS = ".checksums.json"  # hidden, because it is valid only on the machine that holds the text

# Names of all files that a preparation may write or remove.
_OUTPUT = re.compile(
    r"data\.json|preparing\.json|vocab\.(source\.)?model|truecase\.txt|characters\.json|\.lock|\.checksums\.json|\..*\.tmp|"
    rf"(valid|test)\.(source|target)\.txt|{INTERMEDIATE}|{ENCODED}"
)

# Entries of an identity that do not belong to the training text, but to other splits or to the vocabulary.
_NON_TRAINING_NAMES = re.compile(r"(\d+_)?(valid|test)_(source|target)|(source_)?vocab_from|(truecase|characters)_from")

# The steps to repeat after a change of a setting; other settings repeat all steps.
_VOCABULARY_SETTINGS = ("vocab_type", "vocab_size", "source_vocab_size", "extend_vocab", "symbols")
# The names of the `vocabulary_files` of a given vocabulary.
_VOCABULARY_FROM = ("vocab_from", "source_vocab_from", "truecase_from", "characters_from")
_DEPENDENTS = {
    **dict.fromkeys((*_VOCABULARY_SETTINGS, *_VOCABULARY_FROM, "final_marks", "truecase"), ("vocabulary", "encoding")),
    "max_length_ratio": ("encoding",),
}


class PreparedData:
    """A directory of prepared data.

    Attributes:
        directory: the directory.
        config: settings of the preparation.
        counts: for each split, the number of pairs read, repaired, kept and dropped, and of tokens.
        provenance: the origin of the text.
        part_sizes: number of training pairs of each corpus, in the order of the rows.
        output_limit: settings of `DecodeConfig` that limit the length of outputs, derived from the lengths of the
            training pairs; empty if the defaults apply.
        split_by: `DecodeConfig.split` for models trained on this data; "sentences" if most sources are single
            sentences.
        identity: versions and checksums of the text.

    Raises:
        InputError: `record` is not a record of prepared data.
    """

    def __init__(self, directory: str | Path, record: Mapping[str, Any]) -> None:
        self.directory = Path(directory)
        try:
            self.config = Config.from_dict({"data": record["config"]}).data
            self.counts: dict[str, Counts] = record["counts"]
            self.provenance: Mapping[str, Any] = record["provenance"]
            self.part_sizes: list[int] = record["part_sizes"]
            self.output_limit: dict[str, Any] = record["output_limit"]
            self.split_by: Literal["sentences", "lines"] = record.get("split", DecodeConfig.split)
            self.identity: Mapping[str, Any] = record["identity"]
        except (KeyError, TypeError, AttributeError):  # other programs use the file name too
            raise InputError(f"{self.directory / _COMPLETE} does not belong to prepared data") from None
        except InputError as error:  # for example, an unknown setting
            raise InputError(f"{self.directory / _COMPLETE}: {error}") from None

    @classmethod
    def open(cls, data_dir: str | Path) -> "PreparedData":
        """Opens a directory of prepared data; raises an InputError if the data is missing or incomplete."""
        data_dir = local_path(data_dir, "data_dir")
        record = read_json(data_dir / _COMPLETE)
        if record is not None:
            return cls(data_dir, record)
        if (data_dir / _JOURNAL).exists():
            raise InputError(
                f"{data_dir}: its preparation was interrupted; run launch.prepare_data again with the same settings"
            )
        raise InputError(f"{data_dir}: no prepared data here ({_COMPLETE} is missing); run launch.prepare_data")

    @property
    def vocab_path(self) -> Path:
        """The path of the vocabulary."""
        return self.directory / VOCABULARY

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, loaded from its file at each access."""
        return Tokenizer.load(self.vocab_path)

    @property
    def training_text(self) -> str:
        """A checksum of the versions and file checksums of the training text or, without any, of its token ids."""
        identity = {name: value for name, value in self.identity.items() if not _NON_TRAINING_NAMES.fullmatch(name)}
        if not identity:
            return self.split("train").checksum()
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def splits(self) -> list[str]:
        """The existing splits: "train", "valid" and possibly "test"."""
        return [split for split in SPLITS if split in self.counts]

    def split(self, name: str) -> EncodedCorpus:
        """Opens the token ids of a split; raises an InputError if the split does not exist."""
        self._check_split(name, self.splits)
        return EncodedCorpus.open(self.directory, name)

    def text(self, split: str) -> tuple[list[str], list[str]]:
        """Reads the sources and references of "valid" or "test"; raises an InputError for other splits."""
        self._check_split(split, [name for name in self.splits if name != "train"])
        pairs = list(read_pairs(*text_paths(self.directory, split)))
        return [source for source, _ in pairs], [reference for _, reference in pairs]

    def _check_split(self, split: str, valid: list[str]) -> None:
        if split not in valid:
            raise InputError(f"{self.directory}: has no split {split!r}; available splits: {', '.join(valid)}")


def prepare(
    corpus: Corpus,
    config: DataConfig,
    data_dir: str | Path,
    report: Callable[[str], None] = print,
    processes: int | Workers = 1,
    shard_pairs: int = SHARD_PAIRS,
    vocab_from: str | Path | None = None,
) -> PreparedData:
    """Prepares data in a directory, or opens the directory if the data is already prepared.

    Args:
        corpus: the parallel text. If it has no "valid" split, one is drawn from "train".
        config: data settings.
        data_dir: the directory, created if missing.
        report: called with a line of text when a step begins.
        processes: number of processes that prepare shards in parallel, or other workers, such as `BeamWorkers`. The
            output does not depend on it. With more than one process, the calling script must be guarded by
            `if __name__ == "__main__"`, because processes are spawned.
        shard_pairs: number of training pairs in a shard, which is prepared at once and written to one file.
        vocab_from: path of a vocabulary of type `config.vocab_type`, to use instead of training one. Missing symbols
            and `config.extend_vocab` pieces of the training text are appended to its entries.

    Returns:
        The prepared data.

    Raises:
        InputError: the text or a setting is invalid, the directory holds data prepared with different settings, another
            process is preparing the directory, or a process was killed.
        OSError: a file cannot be written, for example because the disk is full.
        ValueError: `processes` or `shard_pairs` is not positive.
    """
    for name, value in (("processes", processes), ("shard_pairs", shard_pairs)):
        if isinstance(value, int) and value < 1:
            raise ValueError(f"{name} must be positive, got {value}")
    _check_settings(config, vocab_from)
    if vocab_from:
        paths = vocabulary_files(local_path(vocab_from, "vocab_from"))
        entries = zip(_VOCABULARY_FROM, paths, strict=True)
        vocabulary_paths = {name: path for name, path in entries if path == paths[0] or path.exists()}
        corpus = dataclasses.replace(corpus, files={**corpus.files, **vocabulary_paths})
    data_dir = local_path(data_dir, "data_dir")
    _check_not_replaced(corpus.files, data_dir)
    # A process killed at the very end leaves intermediate files. They stay if the directory is read-only.
    is_tidy = not (data_dir / _JOURNAL).exists() or not os.access(data_dir, os.W_OK)
    if (data_dir / _COMPLETE).exists() and is_tidy:  # not locked, because the directory may be read-only
        return _reopen(corpus, config, data_dir, report)
    with locked(data_dir, verb="prepare data", participle="prepared", flag="--data_dir"):
        if (data_dir / _COMPLETE).exists():  # completed by the previous holder of the lock, or by a killed process
            _remove_intermediate(data_dir)
            return _reopen(corpus, config, data_dir, report)
        workers = Processes(processes) if isinstance(processes, int) else processes
        return _run_steps(corpus, config, data_dir, report, workers, shard_pairs)


def _check_settings(config: DataConfig, vocab_from: str | Path | None) -> None:
    """Raises an InputError for settings that the task does not support or that contradict each other."""
    kind = task(config.task)
    if config.lowercases_sources and not kind.writes_text:
        flag = "--vocab_from, a vocabulary of lowercased text" if vocab_from else "--lowercase"
        raise InputError(f"{flag}: outputs of {config.task} are not text, and their labels must not change")
    if config.final_marks and not kind.writes_text:
        raise InputError(f"--final_marks: outputs of {config.task} are not text, and have no final marks")
    if config.truecase and not kind.writes_text:
        raise InputError(f"--truecase: outputs of {config.task} are not text, and must not change")
    if kind.is_masked and (config.lowercase == "source" or config.truecase):
        flag = "--truecase" if config.truecase else "--lowercase=source"
        raise InputError(f"{flag}: {config.task} makes its sources from its targets, so both must have the same case")
    if config.lowercases_sources and (capitals := [each for each in config.all_symbols if each != lowercased(each)]):
        raise InputError(f"--lowercase: the symbol {capitals[0]} would no longer occur in the text; lowercase it too")
    if any(config.tags) and not kind.takes_tags:
        raise InputError(f"--tag: a source of {config.task} must not begin with a tag, which would count as a word")
    if config.source_vocab_size and kind.writes_source:
        raise InputError(
            f"--source_vocab_size: outputs of {config.task} contain words of the sources: both must share a vocabulary"
        )
    if config.extend_vocab and not vocab_from:
        raise InputError(f"--extend_vocab={config.extend_vocab} needs --vocab_from, the vocabulary to extend")


def _check_not_replaced(files: Mapping[str, Path], data_dir: Path) -> None:
    """Raises an InputError if the preparation would replace or remove an input file."""
    for path in files.values():
        for place in (path.parent.resolve() / path.name, path.resolve()):  # the path, and the target if it is a link
            if place.parent == data_dir.resolve() and _OUTPUT.fullmatch(place.name):
                raise InputError(
                    f"{path}: the preparation would replace it, because {data_dir} gets a file of that name; use a "
                    "different --data_dir, or move the file"
                )


def _identity(corpus: Corpus, data_dir: Path) -> dict[str, str]:
    """Returns the versions and checksums that identify the text of a corpus."""
    return {**corpus.identity, **checksums(corpus.files, data_dir / _CHECKSUMS)}


def _reopen(corpus: Corpus, config: DataConfig, data_dir: Path, report: Callable[[str], None]) -> PreparedData:
    """Opens prepared data; raises an InputError if its text or settings differ from the given ones."""
    data = PreparedData(data_dir, read_json(data_dir / _COMPLETE))
    old_settings = {**dataclasses.asdict(data.config), **data.identity}
    if differences := changes(old_settings, {**dataclasses.asdict(config), **_identity(corpus, data_dir)}):
        text = ", ".join(differences)
        raise InputError(f"{data_dir}: already prepared with different settings ({text}); use a different --data_dir")
    report(f"{data_dir}: already prepared")
    return data


def _run_steps(
    corpus: Corpus,
    config: DataConfig,
    data_dir: Path,
    report: Callable[[str], None],
    workers: Workers,
    shard_pairs: int,
) -> PreparedData:
    """Runs all steps that are not done yet; the caller must hold the lock of the directory."""
    identity = _identity(corpus, data_dir)
    settings = {**dataclasses.asdict(config), **identity, "shard_pairs": shard_pairs}
    journal = Journal(data_dir / _JOURNAL, json.loads(json.dumps(settings)), _DEPENDENTS)
    _remove_leftovers(data_dir, begin_anew=not journal.done)
    if journal.done:
        report(f"{data_dir}: resuming after an interruption; {len(journal.done)} steps are done already")
    counts = dict(journal.step("evaluation text", lambda: _clean_evaluation(corpus, config, data_dir)))
    training = TrainingSplit(data_dir, config, journal, workers, shard_pairs)
    report("reading and cleaning the training text")
    clean_counts = training.clean(corpus, tuple(counts))
    counts["train"] = training.select(clean_counts, draw="valid" not in counts)
    _check_not_empty(counts["train"], "cleaning")
    if "valid" not in counts:
        size = counts["train"]["validation"]
        counts["valid"] = {"read": size, "kept": size}
    report(_vocabulary_step(corpus, config))
    journal.step("vocabulary", lambda: _make_vocabulary(training, corpus, config, data_dir, counts["train"]["kept"]))
    for split in (name for name in SPLITS if name in counts and name != "train"):
        report(f"encoding {split}")
        tokens = journal.step(f"encoding {split}", functools.partial(_encode, data_dir, config, split))
        counts[split] = {**counts[split], **tokens}
    report("encoding train")
    counts["train"] = training.encode(counts["train"])
    _check_not_empty(counts["train"], "encoding")
    record = {
        "config": dataclasses.asdict(config),
        "identity": identity,
        "provenance": training.provenance,
        "counts": {split: counts[split] for split in SPLITS if split in counts},
        "part_sizes": training.part_sizes,
        "output_limit": output_limit(config, training.lengths()),
        "several_sentences": round(training.share_of_several, 4),
        "split": "lines" if training.share_of_several >= _SEVERAL_IN_LINES else "sentences",
    }
    write_json(data_dir / _COMPLETE, record)
    _remove_intermediate(data_dir)
    return PreparedData(data_dir, record)


def _remove_intermediate(data_dir: Path) -> None:
    """Removes intermediate files, and the journal last: as long as it exists, the next call removes the rest."""
    for path in (*_training_files(data_dir, INTERMEDIATE), data_dir / _JOURNAL):
        path.unlink(missing_ok=True)


def _remove_leftovers(data_dir: Path, begin_anew: bool) -> None:
    """Removes temporary files of killed processes and, if `begin_anew`, all intermediate files and encoded shards."""
    paths = list(data_dir.glob(".*.tmp"))
    if begin_anew:
        paths += _training_files(data_dir, f"{INTERMEDIATE}|{ENCODED}")
    for path in paths:
        if path.is_dir():  # the jobs of a killed process
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _training_files(data_dir: Path, names: str) -> list[Path]:
    """Returns the files of the training split whose names match the regular expression `names`."""
    return [path for path in data_dir.glob("train.*") if re.fullmatch(names, path.name)]


def _clean_evaluation(corpus: Corpus, config: DataConfig, data_dir: Path) -> dict[str, Counts]:
    """Writes the text of the validation and test splits that the corpus has, and returns their counts."""
    counts: dict[str, Counts] = {}
    for split in ("valid", "test"):
        if split in corpus.splits:
            cleaner = Cleaner(config.lowercase)
            pairs = list(cleaner.for_evaluation(corpus.splits[split]()))
            if not pairs:
                raise InputError(f"the {split} split is empty")
            write_text(data_dir, split, pairs)
            counts[split] = cleaner.counts
    return counts


def _make_vocabulary(training: TrainingSplit, corpus: Corpus, config: DataConfig, data_dir: Path, pairs: int) -> int:
    """Trains the vocabulary on every n-th training pair, or adapts a given one, and saves it and the files beside it.

    Returns:
        n, which is above 1 only for very large corpora.
    """
    step = -(-2 * pairs // _VOCABULARY_SENTENCES)
    symbols = list(dict.fromkeys([*config.all_symbols, *task(config.task).symbols(training.references())]))
    base = Tokenizer.load(corpus.files["vocab_from"]) if "vocab_from" in corpus.files else None
    truecaser = _truecaser(training, config, step, base)

    def make(old: Tokenizer | None, size: int, sides: Sequence[int]) -> Tokenizer:
        text = training.sentences(step, sides, truecaser)
        if old is None:
            return trained_tokenizer(text, size, config.lowercases_targets, config.vocab_type, symbols)
        extension = with_symbols(old, symbols)
        if not config.extend_vocab:
            return extension
        return with_pieces(extension, config.extend_vocab, text, config.vocab_type, lowercase=config.lowercases_targets)

    if config.source_vocab_size:
        source = make(base and base.source, config.source_vocab_size, [0])
        tokenizer = Tokenizer(make(base, config.vocab_size, [1]).serialized, source)
    else:
        tokenizer = make(base, config.vocab_size, [0, 1])
        if base and base.source is not base:  # both have the same entries, but split sources differently
            tokenizer = Tokenizer(tokenizer.serialized, with_entries_of(base.source, tokenizer))
    tokenizer.truecaser = truecaser
    tokenizer.characters = _characters(training, step, base)
    tokenizer.save(data_dir / VOCABULARY)
    return step


def _truecaser(training: TrainingSplit, config: DataConfig, step: int, base: Tokenizer | None) -> Truecaser | None:
    """Learns the words to truecase from every `step`-th training pair, or takes those of a given vocabulary."""
    if not config.truecase:
        return None
    if base and base.truecaser:
        return base.truecaser
    return Truecaser.learned(training.sentences(step, [1]), config.target_language)


def _characters(training: TrainingSplit, step: int, base: Tokenizer | None) -> Characters | None:
    """Collects the characters of every `step`-th training pair and, with a given vocabulary, those of its record.

    A given vocabulary without a record gets none, because its model may have learned other characters.
    """
    if base and base.characters is None:
        return None
    characters = Characters.learned(*(training.sentences(step, [side]) for side in (0, 1)))
    return characters.union(base.characters) if base and base.characters else characters


def _vocabulary_step(corpus: Corpus, config: DataConfig) -> str:
    """Returns the progress message of the vocabulary step."""
    if "vocab_from" in corpus.files:
        extension = f", and {config.extend_vocab} more entries" * bool(config.extend_vocab)
        return f"taking the vocabulary {corpus.files['vocab_from']}{extension}"
    size = f"at most {config.vocab_size}" if config.vocab_type in ("char", "byte") else str(config.vocab_size)
    return f"training a {config.vocab_type} vocabulary of {size} entries"


def _encode(data_dir: Path, config: DataConfig, split: str) -> Counts:
    """Writes the token ids of a validation or test split.

    Returns:
        The number of tokens on each side.

    Raises:
        InputError: a reference has a label that does not occur in training.
    """
    pairs, kind = list(read_pairs(*text_paths(data_dir, split))), task(config.task)
    symbols = Tokenizer.load(data_dir / VOCABULARY).symbols
    for number, (_, reference) in enumerate(pairs if kind.has_known_labels else [], start=1):
        if unknown := [symbol for symbol in kind.symbols([reference]) if symbol not in symbols]:
            labels = ", ".join(map(of_symbol, unknown))
            raise InputError(f"{split}, example {number}: {labels}: no training example has this label")
    counts = encode(data_dir, config, split, pairs)
    return {side: counts[side] for side in ("source_tokens", "target_tokens")}


def _check_not_empty(counts: Counts, step: str) -> None:
    if not counts["kept"]:
        raise InputError(f"no training pair remains after {step}: {summary(counts)}")
