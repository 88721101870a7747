"""Where parallel text comes from.

A `Corpus` is a recipe: nothing is read, downloaded or checked for its contents
before a split is asked for.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from t2t_keras.data import corpora_files, downloads
from t2t_keras.data.cleaning import Pair
from t2t_keras.errors import InputError

SPLITS = ("train", "valid", "test")

_MULTI30K_ADDRESS = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
_MULTI30K_LANGUAGES = ("en", "de", "fr", "cs")
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

PairSource = Callable[[], Iterable[Pair]]


@dataclass(frozen=True)
class Corpus:
    """Parallel text by splits.

    Attributes:
        splits: "train" and perhaps "valid" and "test"; each gives its pairs anew,
            in the same order, whenever it is called.
        identity: what tells this text from other text of the same name, such as
            checksums or versions. Prepared data is reused while it is the same.
        provenance: called after reading; where the text was found, for the record.
    """

    splits: Mapping[str, PairSource]
    identity: Mapping[str, str] = field(default_factory=dict)
    provenance: Callable[[], Mapping[str, Any]] = dict


def files(paths: Mapping[str, tuple[str | Path, str | Path | None]]) -> Corpus:
    """A corpus of text files.

    Args:
        paths: for "train" and perhaps "valid" and "test", the files of the source
            and the target side; without the latter, the former holds both sides of
            a pair on a line, separated by a tab.

    Raises:
        InputError: there is no training file, or a file cannot be read.
    """
    if "train" not in paths:
        raise InputError("corpus=files needs training files: --train_source and --train_target")
    identity = {
        f"{split}_{side}": downloads.checksum(path)
        for split, sides in paths.items()
        for side, path in zip(("source", "target"), sides, strict=True)
        if path is not None
    }
    found = {split: [str(Path(path).resolve()) for path in sides if path] for split, sides in paths.items()}
    return Corpus({split: _file_reader(*sides) for split, sides in paths.items()}, identity, lambda: found)


def multi30k(source_language: str, target_language: str, download_dir: str | Path) -> Corpus:
    """Multi30k, task 1: 29,000 image captions in English, German, French and Czech; tested on test_2016_flickr.

    Args:
        source_language: "en", "de", "fr" or "cs".
        target_language: another of these.
        download_dir: holds the published files or a folder `multi30k` of them; what
            is missing is downloaded there.

    Raises:
        InputError: a language without captions, a file that cannot be had, or one
            with another checksum than the published file's.

    Reference: Elliott et al. 2016, https://github.com/multi30k/dataset
    """
    languages = (source_language, target_language)
    for language in languages:
        if language not in _MULTI30K_LANGUAGES:
            raise InputError(f"corpus=multi30k has no language {language!r}; valid: {', '.join(_MULTI30K_LANGUAGES)}")
    if source_language == target_language:
        raise InputError(f"source_language and target_language must differ, both are {source_language!r}")
    names = {split: [f"{stem}.{language}.gz" for language in languages] for split, stem in _MULTI30K_STEMS.items()}
    folder = _folder(download_dir, "multi30k", names["train"][0])
    for name in (name for pair in names.values() for name in pair):
        downloads.fetch(f"{_MULTI30K_ADDRESS}/{name}", folder / name, MULTI30K_SHA256.get(name))
    return files({split: (folder / source, folder / target) for split, (source, target) in names.items()})


def _folder(download_dir: str | Path, name: str, file_name: str) -> Path:
    """The folder of a data set: `download_dir` itself where its files lie there, else the one named after it."""
    download_dir = Path(download_dir)
    return download_dir if (download_dir / file_name).exists() else download_dir / name


def _file_reader(source: str | Path, target: str | Path | None) -> PairSource:
    if target is None:
        return lambda: corpora_files.read_tsv(source)
    return lambda: corpora_files.read_pairs(source, target)
