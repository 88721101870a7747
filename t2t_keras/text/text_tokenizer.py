"""The interface that a translator requires of a tokenizer."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from t2t_keras.symbols import EOS_ID, PAD_ID, UNK_ID
from t2t_keras.text.words import continues_word


@runtime_checkable
class TextTokenizer(Protocol):
    """Converts text to token ids and back, with the special ids of `t2t_keras.symbols`: pad 0, eos 1 and unk 2.

    A tokenizer does not need to inherit this class. A subclass must define only `vocab_size`, `encode`, `decode` and
    `pieces`, and `marks_words` if it applies.
    """

    @property
    def vocab_size(self) -> int:
        """The number of vocabulary entries, including special symbols."""

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of a text, without an end symbol."""

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes the token ids before the first end symbol, without padding; see `content_ids`."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Returns the vocabulary entries of token ids, including special symbols."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the token ids of each text, without end symbols."""
        return [self.encode(text) for text in texts]

    @property
    def source(self) -> "TextTokenizer":
        """The tokenizer of sources; this tokenizer if both sides share a vocabulary."""
        return self

    @property
    def marks_words(self) -> bool:
        """Whether entries that begin a word start with "▁", as SentencePiece's do.

        Excluded phrases, glossaries and word alignments need this.
        """
        return False

    @property
    def continuations(self) -> tuple[int, ...]:
        """The ids of the entries that continue a word; empty if entries do not mark the beginning of a word."""
        if not self.marks_words:
            return ()
        pieces = enumerate(self.pieces(range(self.vocab_size)))
        return tuple(id for id, piece in pieces if id > UNK_ID and continues_word(piece))

    @property
    def symbols(self) -> Mapping[str, int]:
        """The ids of symbols such as language tags and labels, by their spelling in text."""
        return {}

    @property
    def truecaser(self) -> Any:
        """The truecaser of the texts that the model learned to write; None if they kept their case."""
        return None

    @property
    def characters(self) -> Any:
        """The characters of the training text; None if they are not recorded, so that none counts as unknown."""
        return None


_MEMBERS = [name for name in vars(TextTokenizer) if not name.startswith("_")]


def check_tokenizer(tokenizer: Any) -> None:
    """Raises a ValueError that names a missing member if a tokenizer is not a `TextTokenizer`."""
    for name in _MEMBERS:
        if not hasattr(tokenizer, name):
            raise ValueError(
                f"`tokenizer`: {type(tokenizer).__name__} has no `{name}`; see TextTokenizer in "
                "t2t_keras.text.text_tokenizer, which a tokenizer can inherit"
            )


def content_ids(ids: Sequence[int]) -> list[int]:
    """Returns the token ids before the first end symbol, without padding."""
    content = [int(token) for token in ids]
    if EOS_ID in content:
        content = content[: content.index(EOS_ID)]
    return [token for token in content if token != PAD_ID]
