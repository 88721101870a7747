"""Small corpora to prepare, and what comes of preparing them."""

import os
import random
import signal

from t2t_keras.config import DataConfig
from t2t_keras.data.sources import corpora
from t2t_keras.data.sources.corpora import Corpus

ENGLISH = "the cat sees a small dog and big trees over street green apples isn't naïve two old houses by rivers"
GERMAN = "die Katze sieht einen kleinen Hund und große Bäume über Straße grüne Äpfel ist nicht zwei alte Häuser"
CONFIG = DataConfig(vocab_size=320, max_length=80, max_length_ratio=6.0)


def some_pairs(count, seed):
    generator = random.Random(seed)

    def sentence(words):
        return " ".join(generator.choices(words.split(), k=generator.randint(5, 9)))

    return [(sentence(ENGLISH), sentence(GERMAN)) for _ in range(count)]


def corpus_of(identity="1", **splits):
    return Corpus({name: lambda pairs=pairs: iter(pairs) for name, pairs in splits.items()}, {"text": identity})


def names_in(folder):
    """What is not hidden: the lock's file is, and what the text's files looked like."""
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def assert_same_folder(one, other):
    assert names_in(one) == names_in(other)
    for name in names_in(one):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def files_of(folder, **splits):
    """A corpus of files in a folder."""
    paths = {}
    folder.mkdir(parents=True, exist_ok=True)
    for split, pairs in splits.items():
        paths[split] = tuple(folder / f"{split}.{side}" for side in ("en", "de"))
        for path, lines in zip(paths[split], zip(*pairs, strict=True), strict=True):
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return corpora.files(paths)


def kill_itself(data_dir, *_):
    (data_dir / "reached").touch()
    os.kill(os.getpid(), signal.SIGKILL)
