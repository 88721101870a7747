"""Sources of parallel text: files, public data sets, Python packages, tensorflow_datasets.

A `Corpus` reads its text only when a split is called. Multi30k, Tatoeba and corpora of OPUS are downloaded when the
`Corpus` is created, other data sets when it is read.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_keras.config import DataConfig
from t2t_keras.data import readers
from t2t_keras.data.cleaning import Pair
from t2t_keras.data.sources import corpora_files, docstrings, downloads, gettext_catalogues, opus, packages, tatoeba
from t2t_keras.data.sources.parallel_files import ParallelFiles, tagged
from t2t_keras.errors import InputError
from t2t_keras.machine.files import local_path
from t2t_keras.tasks.registry import task
from t2t_keras.tasks.task import Task
from t2t_keras.text.language_codes import Languages

SPLITS = ("train", "valid", "test")

_MULTI30K_ADDRESS = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
_MULTI30K_LANGUAGES = ("en", "de", "fr")
_MULTI30K_STEMS = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
MULTI30K_SHA256 = {
    "test_2016_flickr.de.gz": "26ef35775a5540d27fc04e66063d59a180388beeede5121c0806dee0c79949e0",
    "test_2016_flickr.en.gz": "7771063a5bca8712e4c60941bcb128301aab5a3eecc66abbb5d150aa3133a55d",
    "test_2016_flickr.fr.gz": "dd7ea75d034e0ba2b0d11133c9b8e7302a1f90b7089c37958bb3f30a13dd34d2",
    "train.de.gz": "8506e50eaf610b55a8286d1ce85e4098dc2a0a0fce45b4827a5409d9897a81b4",
    "train.en.gz": "ffdb848427a3fccff4f5c9c848dff8b8b5745e8f464f44341b6c5c5288f265db",
    "train.fr.gz": "c166741e192f44dd31ffa54e4b36fcefa73cf59ef25f7caa0a40d12df228f967",
    "val.de.gz": "9c3697bf5d18908e41df6a94b8a006ab64dbc66f38790865d6694136428a524d",
    "val.en.gz": "459836b7adfe4fd130d0a8c680e2860d6099fbea0fd1bdbbc7442bbc5afce59b",
    "val.fr.gz": "db0df8e33e7fc69c9873c985be40f12293fab84868137837caa3aa2b93a8b764",
}

NAMES = (
    *("files", "multi30k", "tatoeba", "gettext", "gettext_permissive", "docstrings", "wmt14"),
    *("opus:NAME/VERSION", "tfds:NAME"),
)
_DEFAULT_LANGUAGES = Languages(DataConfig.source_language, DataConfig.target_language)
Paths = tuple[str | Path, str | Path | None]
PairSource = Callable[[], Iterable[Pair]]


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Parallel text by split.

    Attributes:
        splits: functions that read "train" and optionally "valid" and "test"; each call returns the pairs anew, in the
            same order.
        identity: versions that identify the text; prepared data is reused only if they are the same.
        files: the files of the text by name; their checksums also identify the text.
        provenance: function that returns where the text came from, for the record; called after reading.
        parts: functions that read the corpora in "train", in order; empty for a single corpus.
    """

    splits: Mapping[str, PairSource]
    identity: Mapping[str, str] = dataclasses.field(default_factory=dict)
    files: Mapping[str, Path] = dataclasses.field(default_factory=dict)
    provenance: Callable[[], Mapping[str, Any]] = dict
    parts: tuple[PairSource, ...] = ()

    @property
    def training_parts(self) -> tuple[PairSource, ...]:
        """Functions that read the corpora in "train", in order."""
        return self.parts or (self.splits["train"],)


def of_config(
    config: DataConfig,
    download_dir: str | Path,
    paths: Sequence[Mapping[str, Paths]] = (),
    report: Callable[[str], None] = print,
) -> Corpus:
    """Returns the corpus that a configuration names, or all its corpora in all its directions, combined into one.

    Args:
        config: data settings.
        download_dir: directory for downloads; files that are already there are used.
        paths: text files of each corpus for `corpus=files`; see `files`.
        report: called with a line of text about downloads.

    Raises:
        InputError: the corpus is unknown or not for the task, or the function of the corpus (`files`, `multi30k`, ...)
            raised one.
    """
    names = config.corpus.split(",")
    for name in names:
        if name not in NAMES and not name.startswith(("opus:", "tfds:")):
            raise InputError(f"corpus={name}: unknown corpus; valid: {', '.join(NAMES)}")
    if config.corpus == "files":
        if config.directions:
            raise InputError(
                "directions cannot be combined with corpus=files: give the files of each direction with a tag"
            )
        languages = Languages(config.source_language, config.target_language)
        return combined([files(group, config.task, languages) for group in paths or [{}]], config.tags)
    if "files" in names:
        raise InputError(f"corpus={config.corpus}: files cannot be combined with other corpora")
    for name in names:
        required_task = "summarisation" if name == "docstrings" else "translation"
        if config.task != required_task:
            raise InputError(
                f"corpus={name} is text for task={required_task}, not {config.task}; corpus=files accepts any task"
            )
    if paths:
        raise InputError(f"corpus={config.corpus} has its own text; text files require corpus=files")
    directions = config.language_pairs
    all_corpora = [_public_corpus(name, pair, download_dir, report) for name in names for pair in directions]
    return combined(all_corpora, config.tags)


def _public_corpus(
    name: str, languages: tuple[str, str], download_dir: str | Path, report: Callable[[str], None]
) -> Corpus:
    """Returns the corpus of a public data set."""
    if name == "multi30k":
        return multi30k(*languages, download_dir)
    if name == "tatoeba":
        return tatoeba_pairs(*languages, download_dir)
    if name in ("gettext", "gettext_permissive"):
        return gettext(*languages, download_dir, report, name)
    if name == "docstrings":
        return docstring_pairs(download_dir, report)
    if name.startswith("opus:"):
        return opus_pairs(name.removeprefix("opus:"), *languages, download_dir)
    if name == "wmt14":
        other = _foreign_language("wmt14", *languages)
        return tensorflow_datasets(f"wmt14_translate/{other}-en", *languages, download_dir)
    return tensorflow_datasets(name.removeprefix("tfds:"), *languages, download_dir)


def files(
    paths: Mapping[str, Paths], task_name: str = "translation", languages: Languages = _DEFAULT_LANGUAGES
) -> Corpus:
    """Returns a corpus of text files.

    Args:
        paths: the source file and the target file of "train" and optionally of "valid" and "test". If the target file
            is None, the source file holds examples in the format of the task. For translation and summarisation, it has
            both sides, in a format of `readers.FORMATS` or else separated by a tab.
        task_name: name of the task.
        languages: the languages of sources and targets, for formats with texts in several languages.

    Raises:
        InputError: there is no training file, a file cannot be read or has a format that is refused, or the task is
            unknown.
    """
    read = task(task_name)
    if "train" not in paths:
        required_flags = "--train_source and --train_target" if read.is_parallel else "--train_source"
        raise InputError(f"corpus=files needs training files: {required_flags}")
    all_files = {
        f"{split}_{side}": local_path(path, f"{split}_{side}")
        for split, sides in paths.items()
        for side, path in zip(("source", "target"), sides, strict=True)
        if path is not None
    }
    for path in all_files.values():
        corpora_files.check_readable(path)
    resolved_paths = {split: [str(Path(path).resolve()) for path in sides if path] for split, sides in paths.items()}
    splits = {split: _file_reader(read, languages, *sides) for split, sides in paths.items()}
    return Corpus(splits, files=all_files, provenance=lambda: resolved_paths)


def combined(corpora: Sequence[Corpus], tags: Sequence[str] = ()) -> Corpus:
    """Combines several corpora into one.

    Args:
        corpora: the corpora.
        tags: for each corpus, a tag that is prepended to its sources, or ""; empty for no tags.

    Raises:
        InputError: the numbers of tags and corpora differ.
    """
    if tags and len(tags) != len(corpora):
        raise InputError(
            f"{len(tags)} tags ({', '.join(map(repr, tags))}) for {len(corpora)} corpora: give one per corpus"
        )
    if len(corpora) == 1 and not any(tags):
        return corpora[0]

    def read(split: str) -> tuple[PairSource, ...]:
        return tuple(
            _add_tag(corpus.splits[split], tag)
            for corpus, tag in zip(corpora, tags or [""] * len(corpora), strict=True)
            if split in corpus.splits
        )

    def numbered(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {f"{number}_{name}": value for number, each in enumerate(values, 1) for name, value in each.items()}

    return Corpus(
        {split: functools.partial(_chain, read(split)) for split in SPLITS if read(split)},
        numbered([corpus.identity for corpus in corpora]),
        numbered([corpus.files for corpus in corpora]),
        lambda: numbered([corpus.provenance() for corpus in corpora]),
        read("train"),
    )


def multi30k(source_language: str, target_language: str, download_dir: str | Path) -> Corpus:
    """Returns Multi30k, task 1: 29,000 image captions in English, German and French; the test set is test_2016_flickr.

    Args:
        source_language: "en", "de" or "fr".
        target_language: "en", "de" or "fr".
        download_dir: directory that holds the published files, or a subdirectory `multi30k` with them; missing files
            are downloaded.

    Raises:
        InputError: a language is not available, a file cannot be downloaded, or its checksum is wrong.

    Reference: Elliott et al. 2016, https://github.com/multi30k/dataset
    """
    languages = (source_language, target_language)
    for language in languages:
        if language not in _MULTI30K_LANGUAGES:
            raise InputError(f"corpus=multi30k has no language {language!r}; valid: {', '.join(_MULTI30K_LANGUAGES)}")
    names = {split: [f"{stem}.{language}.gz" for language in languages] for split, stem in _MULTI30K_STEMS.items()}
    folder = _folder(download_dir, "multi30k", names["train"][0])
    for name in (name for pair in names.values() for name in pair):
        downloads.fetch(f"{_MULTI30K_ADDRESS}/{name}", folder / name, MULTI30K_SHA256[name])
    return files({split: (folder / source, folder / target) for split, (source, target) in names.items()})


def tatoeba_pairs(source_language: str, target_language: str, download_dir: str | Path) -> Corpus:
    """Returns Tatoeba: many short everyday sentences, with English on one side.

    Args:
        source_language: two-letter code.
        target_language: two-letter code; exactly one of the two languages must be "en".
        download_dir: directory that holds `en-XX.train.en.gz` and so on, or a subdirectory `tatoeba` with them; missing
            files are created from the published archive.

    Raises:
        InputError: the archive is not available, or not exactly one side is English.
    """
    language = _foreign_language("tatoeba", source_language, target_language)
    names = {stem: tatoeba.file_names(language, stem) for stem in tatoeba.STEMS}
    folder = _folder(download_dir, "tatoeba", names["train"][0])
    if not all((folder / name).exists() for pair in names.values() for name in pair):
        tatoeba.download(language, folder)
    splits = {"train": names["train"], "valid": names["val"], "test": names["test"]}
    if source_language != "en":
        splits = {split: (other, english) for split, (english, other) in splits.items()}
    return files({split: (folder / source, folder / target) for split, (source, target) in splits.items()})


def opus_pairs(name: str, source_language: str, target_language: str, download_dir: str | Path) -> Corpus:
    """Returns a corpus of OPUS in one language pair; its archive is downloaded and identifies the text.

    Args:
        name: corpus and version, as in "Tatoeba/v2023-04-12".
        source_language: language code, as OPUS spells it.
        target_language: language code, as OPUS spells it.
        download_dir: the archive is stored in its subdirectory `opus`.

    Raises:
        InputError: the name has no version, or the archive is not available, is damaged, or differs from the first
            download.
    """
    languages = Languages(source_language, target_language)
    archive = opus.fetch(name, languages, local_path(download_dir, "download_dir") / "opus")
    return files({"train": (archive, None)}, languages=languages)


def gettext(
    source_language: str,
    target_language: str,
    download_dir: str | Path,
    report: Callable[[str], None] = print,
    name: str = "gettext",
) -> Corpus:
    """Returns the translations in published Python packages; those of Django are the test set.

    Args:
        source_language: language code.
        target_language: language code; exactly one of the two languages must be "en".
        download_dir: the packages are downloaded to its subdirectory `gettext`.
        report: called with a line of text about downloads and missing packages.
        name: "gettext", or "gettext_permissive" for packages under BSD, MIT, ISC and Apache licences, for models that
            are published.

    Raises:
        InputError: not exactly one side is English.
    """
    language = _foreign_language(name, source_language, target_language)

    def read(wheel: Path) -> Iterable[Pair]:
        pairs = gettext_catalogues.read_wheel(wheel, language)
        return pairs if source_language == "en" else ((other, english) for english, other in pairs)

    pins = packages.GETTEXT if name == "gettext" else packages.GETTEXT_PERMISSIVE
    return _package_corpus(pins, local_path(download_dir, "download_dir") / "gettext", read, report)


def docstring_pairs(download_dir: str | Path, report: Callable[[str], None] = print) -> Corpus:
    """Returns the docstrings in published Python packages; those of NetworkX are the test set.

    A source is a docstring without its first sentence, which is the summary.

    Args:
        download_dir: the packages are downloaded to its subdirectory `docstrings`.
        report: called with a line of text about downloads and missing packages.
    """
    folder = local_path(download_dir, "download_dir") / "docstrings"
    return _package_corpus(packages.DOCSTRINGS, folder, docstrings.read_wheel, report)


def _package_corpus(
    pins: tuple[packages.Pin, ...], folder: Path, read: Callable[[Path], Iterable[Pair]], report: Callable[[str], None]
) -> Corpus:
    """Returns the pairs that `read` finds in the wheels of packages; the first package is the test set."""
    record: dict[str, Any] = {}

    @functools.cache
    def wheels() -> dict[packages.Pin, Path]:
        paths, errors = packages.fetch(pins, folder, report)
        if pins[0] not in paths:
            raise InputError(f"{pins[0].requirement}, the test set, is not available: {errors[pins[0]]}")
        record["packages"] = [pin.requirement for pin in paths]
        record["missing"] = {pin.requirement: error for pin, error in errors.items()}
        return paths

    def pairs(selection: slice) -> Iterator[Pair]:
        for pin in pins[selection]:
            if pin in wheels():
                yield from read(wheels()[pin])

    identity = {pin.requirement: pin.sha256 for pin in pins}
    splits = {"train": lambda: pairs(slice(1, None)), "test": lambda: _first_translations(pairs(slice(1)))}
    return Corpus(splits, identity, provenance=lambda: record)


def tensorflow_datasets(name: str, source_language: str, target_language: str, download_dir: str | Path) -> Corpus:
    """Returns a translation data set of tensorflow_datasets.

    Args:
        name: name of the data set, such as `wmt14_translate/de-en`, optionally with a version.
        source_language: language code.
        target_language: language code.
        download_dir: the data is stored in its subdirectory `tensorflow_datasets`.

    Raises:
        InputError: the data set does not exist, is not a translation data set, does not have these languages, or cannot
            be downloaded.

    Reference: https://www.tensorflow.org/datasets/catalog/wmt14_translate
    """
    import tensorflow_datasets as tfds  # imports TensorFlow, which is slow

    try:
        builder = tfds.builder(name, data_dir=str(local_path(download_dir, "download_dir") / "tensorflow_datasets"))
    except (tfds.core.DatasetNotFoundError, ValueError) as error:
        raise InputError(f"corpus=tfds:{name}: no such data set: {str(error).splitlines()[0]}") from error
    languages = getattr(builder.info.features, "languages", ())
    if not {source_language, target_language} <= set(languages) or source_language == target_language:
        raise InputError(
            f"corpus=tfds:{name} has no texts in {source_language} and {target_language}; "
            f"its languages: {', '.join(languages) or 'none (it is not a translation data set)'}"
        )

    def prepare() -> None:
        try:
            builder.download_and_prepare()
        except OSError:
            raise
        except Exception as error:  # errors of servers and of damaged files have no common base class
            raise InputError(f"corpus=tfds:{name}: not available: {' '.join(str(error).split())[:300]}") from error

    def read(split: str) -> Iterator[Pair]:
        prepare()
        for example in tfds.as_numpy(builder.as_dataset(split=split, shuffle_files=False)):
            yield example[source_language].decode(), example[target_language].decode()

    if not builder.info.splits:  # the splits of some data sets are known only after their preparation
        prepare()
    published = {"train": "train", "valid": "validation", "test": "test"}
    splits = {name: functools.partial(read, split) for name, split in published.items() if split in builder.info.splits}
    return Corpus(splits, {"tensorflow_datasets": builder.info.full_name})


def _folder(download_dir: str | Path, name: str, file_name: str) -> Path:
    """Returns the directory of a data set: `download_dir` if it holds the file, otherwise its subdirectory `name`."""
    download_dir = local_path(download_dir, "download_dir")
    return download_dir if (download_dir / file_name).exists() else download_dir / name


def _file_reader(read: Task, languages: Languages, source: str | Path, target: str | Path | None) -> PairSource:
    if target is None and not read.is_parallel:
        return lambda: read.examples(corpora_files.read_lines(source), str(source))
    return readers.pair_source(source, target, languages, default=".tsv")


def _add_tag(read: PairSource, tag: str) -> PairSource:
    """Returns a function that reads the same pairs and prepends a tag to the sources."""
    if isinstance(read, ParallelFiles):
        return dataclasses.replace(read, tag=tag)
    return lambda: tagged(read(), tag)


def _chain(sources: Iterable[PairSource]) -> Iterator[Pair]:
    return itertools.chain.from_iterable(read() for read in sources)


def _foreign_language(corpus: str, source_language: str, target_language: str) -> str:
    if [source_language, target_language].count("en") != 1:
        raise InputError(
            f"corpus={corpus} has English on one side: source_language or target_language must be en, "
            f"got {source_language} and {target_language}"
        )
    return target_language if source_language == "en" else source_language


def _first_translations(pairs: Iterable[Pair]) -> list[Pair]:
    """Returns the first translation of each source unless it equals the source; for a test set."""
    first: dict[str, Pair] = {}
    for pair in pairs:
        first.setdefault(pair[0], pair)
    return [pair for pair in first.values() if pair[0] != pair[1]]
