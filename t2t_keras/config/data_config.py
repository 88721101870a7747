"""The settings of prepared data."""

import dataclasses
import re
from typing import ClassVar, Literal

from t2t_keras.config.checks import check_not_negative, check_positive, check_seed, check_types
from t2t_keras.errors import InputError

VocabType = Literal["bpe", "unigram", "char", "byte"]

# The length of a text in characters or bytes, where its length in the pieces of a "bpe" or "unigram" vocabulary is 1.
_TOKENS_OF_A_PIECE = 4

_SYMBOL = re.compile(r"<(?!=)[^<>\s]+>")  # labels are <=...>


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """How text became token ids.

    Attributes:
        task: what source and target mean: "translation", "parsing" or another one of `t2t_keras.tasks.registry`.
        corpus: where the text came from ("files", "multi30k", "tatoeba", "gettext", "docstrings", "tfds:NAME").
        source_language: language code of the source side.
        target_language: language code of the target side.
        vocab_type: entries of the shared vocabulary: "bpe" and "unigram" (pieces of words), "char" or "byte".
        vocab_size: entries of the shared vocabulary; with "char" at most as many, and bytes spell rare characters; with
            "byte" there are always 260, and less is refused.
        source_vocab_size: entries of a vocabulary of sources alone, beside that of targets; 0: both sides share one.
        extend_vocab: pieces of the training text that a vocabulary of another run is given in addition.
        symbols: words of the text that are one token each, such as "<2fr>".
        tags: the symbol that each corpus has in front of its sources, "" for none; empty without any tags.
        max_length: training pairs with more tokens than this on a side, end symbol included, are dropped.
        max_length_ratio: training pairs whose sides differ in length by more than this factor are dropped.
        lowercase: whether all text is lowercased before anything else.
        seed: random seed of the preparation.
    """

    section: ClassVar[str] = "data"

    task: str = "translation"
    corpus: str = "files"
    source_language: str = "en"
    target_language: str = "de"
    vocab_type: VocabType = "bpe"
    vocab_size: int = 37000
    source_vocab_size: int = 0
    extend_vocab: int = 0
    symbols: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    max_length: int = 256
    max_length_ratio: float = 4.0
    lowercase: bool = False
    seed: int = 1

    def __post_init__(self) -> None:
        check_types(self)
        check_positive(self, "vocab_size", "max_length", "max_length_ratio")
        check_seed(self)
        check_not_negative(self, "extend_vocab", "source_vocab_size")
        for symbol in self.all_symbols:
            if not _SYMBOL.fullmatch(symbol):
                raise InputError(
                    f"{symbol!r} cannot be a symbol: it must be like <2fr>, without blanks, and not <=...>"
                )

    @property
    def all_symbols(self) -> tuple[str, ...]:
        """The symbols of texts and corpora, each once."""
        return tuple(dict.fromkeys((*self.symbols, *filter(None, self.tags))))

    @property
    def tokens_of_a_piece(self) -> int:
        """About how many tokens take the place of one token of a "bpe" vocabulary; what counts tokens grows by it."""
        return _TOKENS_OF_A_PIECE if self.vocab_type in ("char", "byte") else 1
