"""Facts about prepared data that studies need: settings, vocabulary sizes and sentence lengths."""

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
    """Facts about prepared data. The defaults are placeholders for data that do not exist yet.

    Attributes:
        directory: absolute path of the data; "" if there are none.
        config: settings of the data.
        vocab_size: number of entries of the vocabulary.
        source_vocab_size: number of entries of a separate source vocabulary; None means that both sides share one.
        vocabulary: checksum of the vocabulary, or of both vocabularies.
        pairs: number of training pairs.
        source_tokens: number of tokens in all training sources, end symbols included.
        target_tokens: number of tokens in all training targets, end symbols included.
        text: checksum that identifies the text of all splits; "" if it is unknown.
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
        """Reads the facts from prepared data.

        Raises:
            InputError: the vocabulary is missing.
        """
        counts, tokenizer = data.counts["train"], data.tokenizer
        is_shared = tokenizer.source is tokenizer
        serialized = [tokenizer.serialized] if is_shared else [tokenizer.serialized, tokenizer.source.serialized]
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
        """Raises an InputError if the data exist and are for a different task than the table needs."""
        if self.directory and self.config.task not in tasks:
            valid = " or ".join(tasks)
            raise InputError(
                f"{self.directory}: --table={table} needs data of --task={valid}, not of {self.config.task}"
            )

    @property
    def length(self) -> int:
        """Mean number of tokens per sentence over both sides, rounded up."""
        return -(-(self.source_tokens + self.target_tokens) // (2 * self.pairs))

    def training_flops(self, model: ModelConfig) -> float:
        """Returns the operations to train on one target token and its share of source tokens, at the mean length."""
        per_pair = sum(model.training_flops(self.length).values())  # for one source token and one target token
        return per_pair * (self.source_tokens + self.target_tokens) / (2 * self.target_tokens)


def write_facts(study_dir: pathlib.Path, facts: DataFacts) -> None:
    """Writes the facts to a study's folder, so that its table can be printed on machines without the data."""
    write_json(study_dir / FACTS, {**dataclasses.asdict(facts), "directory": ""})


def read_facts(study_dir: pathlib.Path) -> DataFacts:
    """Returns the facts stored in a study's folder, or the defaults if there are none.

    Raises:
        InputError: the file is damaged.
    """

    def parse(values: dict) -> DataFacts:
        return DataFacts(**{**values, "config": Config.from_dict({"data": values["config"]}).data})

    return read_json(study_dir / FACTS, parse, "; delete it and give --data_dir") or DataFacts()
