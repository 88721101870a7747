"""Small corpora for tests of the preparation, and comparisons of the data prepared from them."""

import os
import random
import signal

from t2t_keras.config import DataConfig
from t2t_keras.data.sources import corpora
from t2t_keras.data.sources.corpora import Corpus

ENGLISH = "the cat sees a small dog and big trees over street green apples isn't naïve two old houses by rivers"
GERMAN = "die Katze sieht einen kleinen Hund und große Bäume über Straße grüne Äpfel ist nicht zwei alte Häuser"
CONFIG = DataConfig(vocab_size=320, max_length=80, max_length_ratio=6.0)


def random_pairs(count, seed):
    generator = random.Random(seed)

    def sentence(words):
        return " ".join(generator.choices(words.split(), k=generator.randint(5, 9)))

    return [(sentence(ENGLISH), sentence(GERMAN)) for _ in range(count)]


def corpus_of(identity="1", **splits):
    return Corpus({name: lambda pairs=pairs: iter(pairs) for name, pairs in splits.items()}, {"text": identity})


def visible_names(folder):
    """Returns the names of the visible files. The lock and the cache of checksums are hidden."""
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def assert_same_folder(first, second):
    assert visible_names(first) == visible_names(second)
    for name in visible_names(first):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def write_corpus(folder, **splits):
    """Writes the pairs of each split to files and returns the corpus of these files."""
    paths = {}
    folder.mkdir(parents=True, exist_ok=True)
    for split, pairs in splits.items():
        paths[split] = tuple(folder / f"{split}.{side}" for side in ("en", "de"))
        for path, lines in zip(paths[split], zip(*pairs, strict=True), strict=True):
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return corpora.files(paths)


def kill_process(data_dir, *_):
    (data_dir / "reached").touch()
    os.kill(os.getpid(), signal.SIGKILL)
