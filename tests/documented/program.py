"""Runs a program of the documents: `python -m tests.documented.program MODULE [argument ...]`.

Made-up text stands in the place of the corpora that programs download, which are downloaded from other servers.
"""

import runpy
import sys

from t2t_keras.data.sources import corpora
from t2t_keras.data.sources.corpora import Corpus

SPLITS = {"train": (0, 200), "valid": (200, 206), "test": (206, 212)}


def _pairs(first: int, last: int) -> list[tuple[str, str]]:
    words = [" ".join(f"{'abcdefgh'[number // 8**place % 8]}o" for place in range(3)) for number in range(first, last)]
    return [(f"A {line} runs.", f"Ein {line} läuft.") for line in words]


def _corpus(*_arguments: object) -> Corpus:
    return Corpus({name: lambda ends=ends: _pairs(*ends) for name, ends in SPLITS.items()}, {"text": "made up"})


for name in ("multi30k", "tatoeba_pairs", "gettext", "docstring_pairs", "tensorflow_datasets"):
    assert callable(getattr(corpora, name))
    setattr(corpora, name, _corpus)

if __name__ == "__main__":
    module, *sys.argv[1:] = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
