"""Settings of data preparation."""

import dataclasses
import re
from typing import Literal

from t2t_keras.errors import InputError
from t2t_keras.values import NonNegativeInt, PositiveFloat, PositiveInt, Seed, check_fields

VocabType = Literal["bpe", "unigram", "char", "byte"]
Lowercase = Literal["none", "source", "both"]

# Approximate number of characters or bytes per piece of a "bpe" or "unigram" vocabulary.
_TOKENS_OF_A_PIECE = 4

_DIRECTION = re.compile(r"[A-Za-z_]+-[A-Za-z_]+")
_SYMBOL = re.compile(r"<(?!=)[^<>\s]+>")  # not <=...>, which is the form of labels


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Settings of data preparation: the text, its vocabulary and its conversion to token ids.

    Attributes:
        task: the meaning of source and target: "translation", "parsing" or any task of `t2t_keras.tasks.registry`.
        corpus: origin of the text: "files", "multi30k", "tatoeba", "gettext", "gettext_permissive", "docstrings",
            "wmt14", "opus:NAME/VERSION" or "tfds:NAME"; several names are separated by commas.
        source_language: language code of the source side.
        target_language: language code of the target side.
        directions: pairs of languages such as "en-de", in which each corpus is read; empty for the two languages above.
            A tag such as "<2de>" then stands in front of each source.
        vocab_type: kind of vocabulary entries: "bpe" or "unigram" (subwords), "char" or "byte".
        vocab_size: number of entries of the vocabulary, which both sides share unless source_vocab_size is given. With
            "char" it is an upper limit, and rare characters are spelled in bytes. With "byte" there are always 260
            entries plus the symbols, and a smaller value is an error.
        source_vocab_size: number of entries of a separate vocabulary for sources; 0 means that both sides share one.
        extend_vocab: number of pieces of the training text that are added to the vocabulary of a different run.
        symbols: words of the text that are one token each, such as "<2fr>".
        tags: symbol in front of the sources of each corpus, "" for none; empty means no tags at all. With
            `directions`, the default is "<2de>" for the target language "de", and so on.
        max_length: training pairs with more tokens than this on either side, end symbol included, are dropped.
        max_length_ratio: training pairs whose sides differ in length by more than this factor are dropped.
        lowercase: the sides whose text is lowercased first: "none", "source" or "both".
        final_marks: whether a full stop at the end of training targets is removed or added to agree with the source.
        truecase: whether the first word of a target is learned in its usual case, and outputs are capitalised.
        seed: random seed of the preparation.
    """

    task: str = "translation"
    corpus: str = "files"
    source_language: str = "en"
    target_language: str = "de"
    directions: tuple[str, ...] = ()
    vocab_type: VocabType = "bpe"
    vocab_size: PositiveInt = 37000
    source_vocab_size: NonNegativeInt = 0
    extend_vocab: NonNegativeInt = 0
    symbols: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    max_length: PositiveInt = 256
    max_length_ratio: PositiveFloat = 4.0
    lowercase: Lowercase = "none"
    final_marks: bool = False
    truecase: bool = False
    seed: Seed = 1

    def __post_init__(self) -> None:
        check_fields(self, "data.{}")
        if self.truecase and self.lowercases_targets:
            raise InputError(f"data.truecase=true cannot be combined with data.lowercase={self.lowercase}")
        for direction in self.directions:
            if not _DIRECTION.fullmatch(direction):
                raise InputError(
                    f"data.directions: {direction!r} is not a direction: expected two language codes, such as en-de"
                )
        if self.directions and not self.tags:
            targets = [target for _ in self.corpus.split(",") for _, target in self.language_pairs]
            object.__setattr__(self, "tags", tuple(f"<2{target}>" for target in targets))
        for symbol in self.all_symbols:
            if not _SYMBOL.fullmatch(symbol):
                raise InputError(
                    f"data.symbols or data.tags: {symbol!r} is not a valid symbol: use the form <2fr>, without blanks; "
                    "the form <=...> is reserved for labels"
                )

    @property
    def language_pairs(self) -> list[tuple[str, str]]:
        """The source and target language of each direction."""
        pairs = [direction.split("-") for direction in self.directions]
        return [(source, target) for source, target in pairs] or [(self.source_language, self.target_language)]

    @property
    def all_symbols(self) -> tuple[str, ...]:
        """The symbols in the text and the tags of the corpora, without duplicates."""
        return tuple(dict.fromkeys((*self.symbols, *filter(None, self.tags))))

    @property
    def lowercases_sources(self) -> bool:
        """Whether sources are lowercased."""
        return self.lowercase != "none"

    @property
    def lowercases_targets(self) -> bool:
        """Whether targets are lowercased."""
        return self.lowercase == "both"

    @property
    def tokens_of_a_piece(self) -> int:
        """Approximate number of tokens per piece of a "bpe" vocabulary, by which limits on tokens are multiplied."""
        return _TOKENS_OF_A_PIECE if self.vocab_type in ("char", "byte") else 1
