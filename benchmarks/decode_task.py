"""The sentences and the weights of `decode.py`."""

import argparse
import dataclasses
from collections.abc import Sequence

import numpy as np

from benchmarks.transformer_preset import transformer_preset
from t2t_keras.config import TransformerConfig
from t2t_keras.data.prepare import PreparedData
from t2t_keras.errors import InputError
from t2t_keras.text.tokenizer import vocabulary_files

PROOF_SENTENCES = 16


def pick_sentences(data: PreparedData, flags: argparse.Namespace) -> dict[str, list]:
    """Returns the sentences to translate, to score, and to translate one by one, as ids and as texts."""
    corpus, (texts, _) = data.split("test"), data.text("test")
    if len(texts) != len(corpus):
        raise InputError(f"the test split has {len(texts)} lines of text, but {len(corpus)} encoded sentences")
    rows = longest_first(corpus.source_lengths, flags.sentences)
    proof = rows[:: max(1, len(rows) // PROOF_SENTENCES)][:PROOF_SENTENCES]
    short = nearest_in_length(flags.latency_words, [len(text.split()) for text in texts], flags.latency_sentences)

    def ids(side: str, row: int) -> list[int]:
        return getattr(corpus, f"{side}_ids")(np.array([row]))[0].tolist()

    return {
        "texts": [texts[row] for row in rows],
        "short_texts": [texts[row] for row in short],
        "sources": [ids("source", row) for row in rows],
        "short_sources": [ids("source", row) for row in short],
        "proof_sources": [ids("source", row) for row in proof],
        "proof_targets": [ids("target", row) for row in proof],
    }


def vocabularies(data: PreparedData) -> list[str]:
    """Returns the files of the source and the target vocabulary."""
    _, source_path, *_ = vocabulary_files(data.vocab_path)
    return [str(path) for path in (source_path if source_path.exists() else data.vocab_path, data.vocab_path)]


def longest_first(lengths: Sequence[int] | np.ndarray, count: int) -> list[int]:
    """Returns the first `count` rows, longest first; rows of equal length keep their order."""
    return sorted(range(min(count, len(lengths))), key=lambda row: -lengths[row])


def nearest_in_length(words: int, word_counts: Sequence[int], count: int) -> list[int]:
    """Returns the `count` rows whose numbers of words are nearest to `words`."""
    return sorted(range(len(word_counts)), key=lambda row: abs(word_counts[row] - words))[:count]


def model_and_weights(
    flags: argparse.Namespace, vocab_size: int, rows: int
) -> tuple[TransformerConfig, dict[str, np.ndarray]]:
    """Returns the model of a run, or a preset's model with random weights; position tables have `rows` rows."""
    from t2t_keras.formats.ctranslate2 import with_positions
    from t2t_keras.models.transformer import Transformer
    from t2t_keras.models.weights import weight_names
    from t2t_keras.runs.load import load_model

    if flags.model_dir:
        model, config, _ = load_model(flags.model_dir, flags.checkpoint)
        if not isinstance(config.model, TransformerConfig):
            raise InputError(f"{flags.model_dir} is not the run of a Transformer")
        sizes = config.model
        if sizes.vocab_size != vocab_size:
            raise InputError(f"{flags.model_dir} has a vocabulary of {sizes.vocab_size}, the data of {vocab_size}")
    else:
        sizes = dataclasses.replace(transformer_preset(flags.preset), vocab_size=vocab_size)
        model = Transformer(sizes)
        model.build()
    weights = {n: np.asarray(v) for n, v in zip(weight_names(model), model.trainable_variables, strict=True)}
    if not flags.model_dir:
        weights = random_weights(weights, flags.seed)
    return sizes, with_positions(weights, sizes, rows)


def random_weights(like: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Returns random weights as for training, except that biases are not 0 and scales not 1."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, array in like.items():
        if array.ndim == 1:
            weights[name] = 0.05 * rng.standard_normal(array.shape) + name.endswith("scale")
        elif name.endswith("table"):
            weights[name] = array.shape[1] ** -0.5 * rng.standard_normal(array.shape)
        else:
            weights[name] = (2 / sum(array.shape)) ** 0.5 * rng.standard_normal(array.shape)
    return {name: array.astype(np.float32) for name, array in weights.items()}
