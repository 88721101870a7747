"""What studies have to know of prepared data: its settings, its vocabulary, how long its sentences are."""

import dataclasses
import hashlib
import os

from t2t_keras.config import DataConfig, ModelConfig
from t2t_keras.data.prepare import PreparedData


@dataclasses.dataclass(frozen=True)
class DataFacts:
    """Facts about prepared data; the defaults stand for data that are not there yet.

    Attributes:
        directory: the absolute path of the data; "" if there are none.
        config: settings of the data.
        vocab_size: entries of the vocabulary.
        source_vocab_size: entries of the vocabulary of sources; None: both sides share one.
        vocabulary: checksum of the vocabulary.
        pairs: training pairs.
        source_tokens: tokens of all their sources, end symbols included.
        target_tokens: tokens of all their targets, end symbols included.
    """

    directory: str = ""
    config: DataConfig = DataConfig()
    vocab_size: int = DataConfig.vocab_size
    source_vocab_size: int | None = None
    vocabulary: str = ""
    pairs: int = 1
    source_tokens: int = 32
    target_tokens: int = 32

    @classmethod
    def of(cls, data: PreparedData) -> "DataFacts":
        """Reads them from prepared data; raises an InputError if the vocabulary is missing."""
        counts, tokenizer = data.counts["train"], data.tokenizer
        shared = tokenizer.source is tokenizer
        serialized = [tokenizer.serialized] if shared else [tokenizer.serialized, tokenizer.source.serialized]
        return cls(
            directory=os.path.abspath(data.directory),
            config=data.config,
            **tokenizer.sizes,
            vocabulary=hashlib.sha256(b"".join(serialized)).hexdigest(),
            pairs=counts["kept"],
            source_tokens=counts["source_tokens"],
            target_tokens=counts["target_tokens"],
        )

    @property
    def length(self) -> int:
        """The mean tokens of a sentence of either side, rounded up."""
        return -(-(self.source_tokens + self.target_tokens) // (2 * self.pairs))

    def training_flops(self, model: ModelConfig) -> float:
        """Operations to train on a target token and its share of the source's tokens, in sentences of mean length."""
        per_pair = sum(model.training_flops(self.length).values())  # of one source token and one target token
        return per_pair * (self.source_tokens + self.target_tokens) / (2 * self.target_tokens)
