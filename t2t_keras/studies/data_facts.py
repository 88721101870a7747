"""What studies have to know of prepared data: its settings, its vocabulary, how long its sentences are."""

import dataclasses
import hashlib
import json
import os
import pathlib

from t2t_keras.config import Config, DataConfig, ModelConfig
from t2t_keras.data.prepare import PreparedData
from t2t_keras.errors import InputError
from t2t_keras.machine.files import read_json, write_json

FACTS = "data.json"


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
        text: checksum of what identifies the text of all splits; "" if it is not known.
    """

    directory: str = ""
    config: DataConfig = DataConfig()
    vocab_size: int = DataConfig.vocab_size
    source_vocab_size: int | None = None
    vocabulary: str = ""
    pairs: int = 1
    source_tokens: int = 32
    target_tokens: int = 32
    text: str = ""

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
            text=hashlib.sha256(json.dumps(data.identity, sort_keys=True).encode()).hexdigest()
            if data.identity
            else "",
        )

    def check_task(self, table: str, *tasks: str) -> None:
        """Raises an InputError for data of another task than a table's; data that are not there yet are of any."""
        if self.directory and self.config.task not in tasks:
            wanted = " or ".join(tasks)
            raise InputError(
                f"{self.directory}: --table={table} needs data of --task={wanted}, not of {self.config.task}"
            )

    @property
    def length(self) -> int:
        """The mean tokens of a sentence of either side, rounded up."""
        return -(-(self.source_tokens + self.target_tokens) // (2 * self.pairs))

    def training_flops(self, model: ModelConfig) -> float:
        """Operations to train on a target token and its share of the source's tokens, in sentences of mean length."""
        per_pair = sum(model.training_flops(self.length).values())  # of one source token and one target token
        return per_pair * (self.source_tokens + self.target_tokens) / (2 * self.target_tokens)


def write_facts(study_dir: pathlib.Path, facts: DataFacts) -> None:
    """Keeps them in a study's folder, so that its records can be printed where the data are not."""
    write_json(study_dir / FACTS, {**dataclasses.asdict(facts), "directory": ""})


def read_facts(study_dir: pathlib.Path) -> DataFacts:
    """Those of a study's folder, the defaults if it keeps none; raises an InputError if the file is damaged."""

    def made(kept: dict) -> DataFacts:
        return DataFacts(**{**kept, "config": Config.from_dict({"data": kept["config"]}).data})

    return read_json(study_dir / FACTS, made, "; delete it and give --data_dir") or DataFacts()
