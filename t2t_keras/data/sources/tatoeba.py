"""Downloads the sentence pairs of Tatoeba, and splits them into train, val and test by English sentence."""

import gzip
import hashlib
from collections.abc import Iterable
from pathlib import Path

from t2t_keras.data.cleaning import HeldOut, Pair, comparison_key
from t2t_keras.data.readers import read_pairs
from t2t_keras.data.sources import downloads
from t2t_keras.errors import InputError
from t2t_keras.machine.files import replacing
from t2t_keras.text.language_codes import Languages
from t2t_keras.text.repair import repair

STEMS = ("train", "val", "test")

# A dated release, which the publisher does not change; the archives contain CRC-32 checksums.
ADDRESS = "https://object.pouta.csc.fi/OPUS-Tatoeba/v2023-04-12/moses"

_VAL_PAIRS = 1500
_TEST_PAIRS = 2000
# For a language with few sentences, val and test each get at most 1/20 of the English sentences.
_LARGEST_SHARE = 20


def file_names(language: str, stem: str) -> tuple[str, str]:
    """Returns the file names of a part ("train", "val" or "test"): English, and the other language."""
    return f"en-{language}.{stem}.en.gz", f"en-{language}.{stem}.{language}.gz"


def download(language: str, folder: str | Path) -> None:
    """Downloads the pairs of English and another language, and writes the files of `file_names`.

    Args:
        language: two-letter code of the other language.
        folder: directory of the files.

    Raises:
        InputError: the archive is not available or damaged.

    Reference: https://tatoeba.org (CC BY 2.0 FR), distributed by https://opus.nlpl.eu
    """
    folder = Path(folder)
    release = "-".join(sorted(("en", language)))
    archive = folder / f"{release}.txt.zip"
    downloads.fetch(f"{ADDRESS}/{release}.txt.zip", archive)
    try:
        parts = split_by_english(read_pairs(archive, None, Languages("en", language)))
    except InputError as error:
        raise InputError(f"{error}; delete the file to download it again") from error
    for stem, pairs in zip(STEMS, parts, strict=True):
        for side, name in enumerate(file_names(language, stem)):
            # Without a name and a date in the header, so that the same lines give the same bytes.
            with replacing(folder / name, "wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as gzip_file:
                gzip_file.write("".join(f"{pair[side]}\n" for pair in pairs).encode())


def split_by_english(pairs: Iterable[Pair]) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """Splits pairs into train, val and test, so that no sentence of val or test is in train.

    Val and test have one pair per English sentence. The sentences are selected by a hash of their words, so that new
    sentences hardly change which ones are held out.
    """
    unique = dict.fromkeys((repair(english), repair(other)) for english, other in pairs)
    complete = [pair for pair in unique if all(pair)]
    pairs_by_key: dict[str, Pair] = {}
    for pair in complete:
        pairs_by_key.setdefault(comparison_key(pair[0]), pair)
    ranking = [
        pairs_by_key[key]
        for key in sorted(pairs_by_key, key=lambda key: hashlib.blake2b(key.encode(), digest_size=8).digest())
    ]
    test_count, val_count = (min(count, len(ranking) // _LARGEST_SHARE) for count in (_TEST_PAIRS, _VAL_PAIRS))
    test, val = ranking[:test_count], ranking[test_count : test_count + val_count]
    held_out = HeldOut()
    held_out.add(test + val)
    return [pair for pair in complete if pair not in held_out], val, test
