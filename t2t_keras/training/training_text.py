"""Selects the training text as the settings define it."""

from t2t_keras.config import Config
from t2t_keras.data.batching import Mixture
from t2t_keras.data.masked_corpus import MaskedCorpus
from t2t_keras.data.pipeline import TrainingPairs
from t2t_keras.data.prepare import PreparedData
from t2t_keras.errors import InputError
from t2t_keras.tasks.registry import task


def training_pairs(config: Config, data: PreparedData) -> TrainingPairs:
    """Returns the encoded training split. For masked tasks, the sources are masked copies of the targets."""
    kind, corpus = task(data.config.task), data.split("train")
    if not kind.is_masked:
        return corpus
    (mask,) = kind.symbols([])
    return MaskedCorpus(corpus, data.tokenizer.symbols[mask], config.train.seed)


def mixture_of(config: Config, data: PreparedData) -> Mixture | None:
    """Returns the mixture of the corpora, or None if each pair occurs once per epoch.

    Raises:
        InputError: the number of `train.corpus_weights` differs from the number of corpora.
    """
    weights = config.train.corpus_weights
    if weights and len(weights) != len(data.part_sizes):
        raise InputError(
            f"train.corpus_weights has {len(weights)} values, but the number of corpora in {data.directory} is "
            f"{len(data.part_sizes)}; give one weight per corpus, or --set train.corpus_weights= to use each pair once"
        )
    return Mixture(data.part_sizes, weights) if weights else None
