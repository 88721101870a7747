"""The text that a training learns from, as its settings have it."""

from t2t_keras.config import Config
from t2t_keras.data.batching import Mixture
from t2t_keras.data.masked_corpus import MaskedCorpus
from t2t_keras.data.pipeline import TrainingPairs
from t2t_keras.data.prepare import PreparedData
from t2t_keras.errors import InputError
from t2t_keras.tasks.registry import task


def training_pairs(config: Config, data: PreparedData) -> TrainingPairs:
    """The encoded training split, whose sources are made of its targets if the task says so."""
    kind, corpus = task(data.config.task), data.split("train")
    if not kind.is_masked:
        return corpus
    (mask,) = kind.symbols([])
    return MaskedCorpus(corpus, data.tokenizer.symbols[mask], config.train.seed)


def mixture_of(config: Config, data: PreparedData) -> Mixture | None:
    """How the corpora of the data are mixed; None if each pair occurs once an epoch."""
    weights = config.train.corpus_weights
    if weights and len(weights) != len(data.part_sizes):
        raise InputError(
            f"train.corpus_weights has {len(weights)} values; {data.directory} has corpora: {len(data.part_sizes)}; "
            "--set train.corpus_weights= takes each pair once"
        )
    return Mixture(data.part_sizes, weights) if weights else None
