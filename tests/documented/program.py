"""Runs a program of the documents: `python -m tests.documented.program MODULE [argument ...]`.

Generated text replaces downloaded corpora, and TensorFlow does not optimize graphs.
"""

import functools
import runpy
import sys

import tensorflow as tf

from t2t_keras.data.sources import corpora
from t2t_keras.data.sources.corpora import Corpus

# With the letters of the sentences in the documents, so that no word counts as unknown.
LETTERS = "The quick brown fox jumps over a lazy dog. Please Select Your CPU."
SPLITS = {"train": (0, 200), "valid": (200, 206), "test": (206, 212)}


def _pairs(first: int, last: int) -> list[tuple[str, str]]:
    words = [" ".join(f"{'abcdefgh'[number // 8**place % 8]}o" for place in range(3)) for number in range(first, last)]
    return [(f"A {line} runs.", f"Ein {line} läuft.") for line in words] + [(LETTERS, LETTERS[::-1])] * (first == 0)


def _corpus(*_arguments: object) -> Corpus:
    readers = {name: functools.partial(_pairs, *ends) for name, ends in SPLITS.items()}
    return Corpus(readers, {"text": "made up"})


NAMES = ("multi30k", "tatoeba_pairs", "gettext", "docstring_pairs", "opus_pairs")
for name in (*NAMES, "tensorflow_datasets"):
    assert callable(getattr(corpora, name))
    setattr(corpora, name, _corpus)

# `launch.quickstart` does not have flags for sizes.
SMALL = {"data.vocab_size": 300, "model.num_encoder_layers": 1, "model.num_decoder_layers": 1, "train.max_steps": 9}


def _quickstart() -> None:
    from launch import quickstart
    from t2t_keras.planning.fit_rules import Choice

    quickstart.OVERRIDES = tuple(Choice(name, value, "given") for name, value in SMALL.items())
    quickstart.run()


if __name__ == "__main__":
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    module, *sys.argv[1:] = sys.argv[1:]
    if module == "launch.quickstart":
        _quickstart()
    runpy.run_module(module, run_name="__main__", alter_sys=True)
