"""The settings of prepared data."""

import dataclasses
from typing import ClassVar

from t2t_keras.config.checks import check_positive, check_seed


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """How parallel text became token ids.

    Attributes:
        corpus: where the text came from ("files", "multi30k", "tatoeba", "gettext", "tfds:NAME").
        source_language: language code of the source side.
        target_language: language code of the target side.
        vocab_size: entries of the shared SentencePiece vocabulary.
        max_length: training pairs with more tokens than this on a side, end symbol included, are dropped.
        max_length_ratio: training pairs whose sides differ in length by more than this factor are dropped.
        lowercase: whether all text was lowercased before anything else.
        seed: random seed of the preparation.
    """

    section: ClassVar[str] = "data"

    corpus: str = "files"
    source_language: str = "en"
    target_language: str = "de"
    vocab_size: int = 37000
    max_length: int = 256
    max_length_ratio: float = 4.0
    lowercase: bool = False
    seed: int = 1

    def __post_init__(self) -> None:
        check_positive(self, "vocab_size", "max_length", "max_length_ratio")
        check_seed(self)
