"""SentencePiece tokenization (section 5.1 of the paper); Python and TensorFlow graphs use the same model file."""

import contextlib
import functools
import io
import itertools
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from t2t_keras.errors import InputError
from t2t_keras.machine.files import replacing
from t2t_keras.symbols import EOS_ID, PAD_ID, UNK_ID
from t2t_keras.text.characters import Characters
from t2t_keras.text.pieces import BLANK
from t2t_keras.text.splitting import split_text
from t2t_keras.text.subwords import MAGIC, Subwords
from t2t_keras.text.text_tokenizer import content_ids
from t2t_keras.text.truecase import Truecaser
from t2t_keras.text.words import continues_word

# A text of n characters has at least n / 16 tokens, so text that is much too long is recognised without encoding it.
MAX_PIECE_CHARACTERS = 16

# The rarest characters, 0.01 % of a text, get no entry; byte fallback spells them without loss.
_CHARACTER_COVERAGE = 0.9999
_LONGEST_SENTENCE = 4192  # bytes; SentencePiece's default, because a different value would be stored in the model file

_SURROGATES = (0xD800, 0xDFFF)  # first and last of the code points that are not characters

# Up to this many texts, one thread encodes them in less time than it takes to start more threads.
_FEW_TEXTS = 64

VocabType = Literal["bpe", "unigram", "char", "byte"]

_TOO_MANY_ENTRIES = re.compile(r"value <= (\d+)")
_TOO_FEW_ENTRIES = re.compile(r"required_chars\. \d+ vs (\d+)")


class Tokenizer:
    """Converts text to token ids and back (section 5.1 of the paper).

    Args:
        serialized: contents of a SentencePiece model file, or of a file of tensor2tensor's subwords (`text.subwords`),
            which some imported models use.
        source: tokenizer of sources; None if both sides share a vocabulary.

    Attributes:
        serialized: contents of the model file.
        source: tokenizer of sources; this tokenizer if both sides share a vocabulary.
        truecaser: truecases the texts that a model learns to write, whose outputs must therefore be capitalised; None
            if the targets keep their case.
        characters: the characters of the training text; None if they are not recorded.

    Raises:
        ValueError: `serialized` is not a valid model, or its special symbols are not pad 0, eos 1 and unk 2.
    """

    def __init__(self, serialized: bytes, source: "Tokenizer | None" = None) -> None:
        self._processor = _processor(serialized)
        self.serialized = serialized
        self.source = source or self
        self.truecaser: Truecaser | None = None
        self.characters: Characters | None = None

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Loads a model file and those of the other `vocabulary_files` in the same directory that exist.

        Raises:
            InputError: a file is missing or is not a valid model.
        """
        _, source_path, words_path, characters_path = vocabulary_files(path)
        source = cls._load(source_path) if source_path.exists() else None
        tokenizer = cls._load(path)
        tokenizer.source = source or tokenizer
        tokenizer.truecaser = Truecaser.load(words_path) if words_path.exists() else None
        tokenizer.characters = Characters.load(characters_path) if characters_path.exists() else None
        return tokenizer

    @classmethod
    def _load(cls, path: str | Path) -> "Tokenizer":
        try:
            return cls(Path(path).read_bytes())
        except ValueError as error:
            raise InputError(f"{path}: not a usable vocabulary: {error}") from error
        except OSError as error:
            raise InputError(f"{path}: cannot read the vocabulary: {error.strerror}") from error

    def save(self, path: str | Path) -> None:
        """Writes the model file and, beside it, those of the other `vocabulary_files` for which there is content."""
        source = None if self.source is self else self.source.serialized
        words = self.truecaser.serialized if self.truecaser else None
        characters = self.characters.serialized if self.characters else None
        contents = zip(vocabulary_files(path), (self.serialized, source, words, characters), strict=True)
        for file, content in reversed(list(contents)):  # the model file last, which shows that all are there
            if content is None:
                file.unlink(missing_ok=True)
            else:
                with replacing(file, "wb") as output:
                    output.write(content)

    @property
    def vocab_size(self) -> int:
        """The number of vocabulary entries, including special symbols."""
        return len(self._processor)

    @property
    def sizes(self) -> dict[str, Any]:
        """The fields of a model's configuration that depend on its vocabularies."""
        return {
            "vocab_size": self.vocab_size,
            "source_vocab_size": None if self.has_one_id_space else self.source.vocab_size,
        }

    @property
    def has_one_id_space(self) -> bool:
        """Whether both sides have the same entries and ids; they may still split text differently."""
        return self.source is self or self.entries == self.source.entries

    @functools.cached_property
    def entries(self) -> list[str]:
        """The entries in the order of their ids."""
        return [self._processor.id_to_piece(token) for token in range(self.vocab_size)]

    @property
    def marks_words(self) -> bool:
        """Whether entries mark the beginning of a word; tensor2tensor's subwords mark the end instead."""
        return not isinstance(self._processor, Subwords)

    @functools.cached_property
    def continuations(self) -> tuple[int, ...]:
        """The ids of the entries that continue a word; empty if entries do not mark the beginning of a word."""
        if not self.marks_words:
            return ()
        return tuple(id for id, piece in enumerate(self.entries) if id > UNK_ID and continues_word(piece))

    @functools.cached_property
    def symbols(self) -> dict[str, int]:
        """The ids of the user-defined symbols, by their spelling in text."""
        if isinstance(self._processor, Subwords):
            return {}
        model = sentencepiece_model_pb2.ModelProto.FromString(self.serialized)
        kind = sentencepiece_model_pb2.ModelProto.SentencePiece.USER_DEFINED
        return {entry.piece.removeprefix(BLANK): id for id, entry in enumerate(model.pieces) if entry.type == kind}

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of a text, without an end symbol."""
        return self._processor.encode(text, out_type=int)

    def encode_batch(self, texts: Sequence[str], num_threads: int = -1) -> list[list[int]]:
        """Returns the token ids of each text, without end symbols.

        Args:
            texts: the texts.
            num_threads: number of threads; -1 means one thread per core, or a single thread for few texts.
        """
        if num_threads == -1 and len(texts) <= _FEW_TEXTS:
            return [self.encode(text) for text in texts]
        return self._processor.encode(list(texts), out_type=int, num_threads=num_threads)

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes the token ids before the first end symbol, without padding.

        Raises:
            ValueError: an id is not in the vocabulary.
        """
        return self._processor.decode(content_ids(self._check_ids(ids)))

    def decode_batch(self, ids: Iterable[Sequence[int]]) -> list[str]:
        """Decodes each row as `decode` does; the rows may be padded or have different lengths."""
        return [self.decode(row) for row in ids]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Returns the vocabulary entries of token ids, including special symbols.

        Raises:
            ValueError: an id is not in the vocabulary.
        """
        return [self.entries[token] for token in self._check_ids(ids)]

    def graph_tokenizer(self, name: str | None = None) -> Any:
        """Returns the tokenizer for TensorFlow graphs.

        Args:
            name: name of the tokenizer. Several tokenizers in a SavedModel need different names, because loaders treat
                tokenizers with the same name as one.

        Returns:
            A `tensorflow_text.SentencepieceTokenizer`, or a `GraphSubwords` for tensor2tensor's subwords. `tokenize`
            maps strings [batch] to an int32 RaggedTensor [batch, (tokens)] without end symbols. `detokenize` is its
            inverse, except for spaces at the beginning of a text.

        Reference: https://www.tensorflow.org/text/api_docs/python/text/SentencepieceTokenizer
        """
        # Imported here, because TensorFlow is slow to import and only exports need it.
        if isinstance(self._processor, Subwords):
            from t2t_keras.text.graph_subwords import GraphSubwords

            return GraphSubwords(self._processor.subwords, sorted(self._processor.alphabet), name)
        import tensorflow_text

        return tensorflow_text.SentencepieceTokenizer(model=self.serialized, name=name)

    def _check_ids(self, ids: Sequence[int]) -> list[int]:
        plain, size = [int(token) for token in ids], self.vocab_size
        for token in plain:
            if not 0 <= token < size:
                raise ValueError(f"ids must be in [0, {size}), got {token}")
        return plain


def _processor(serialized: bytes) -> Any:
    """Returns the object that encodes and decodes text; raises a ValueError as `Tokenizer` does."""
    if serialized.startswith(MAGIC):
        return Subwords(serialized)
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=serialized)
    except RuntimeError as error:
        raise ValueError(f"serialized is not a SentencePiece model ({len(serialized)} bytes)") from error
    ids = (processor.pad_id(), processor.eos_id(), processor.unk_id())
    if ids != (PAD_ID, EOS_ID, UNK_ID):
        raise ValueError(f"serialized must have pad, eos, unk at {(PAD_ID, EOS_ID, UNK_ID)}, got {ids}")
    return processor


def vocabulary_files(path: str | Path) -> tuple[Path, Path, Path, Path]:
    """Returns the paths of a vocabulary and of the files beside it, which may not exist.

    These are the vocabulary of sources, the words whose case changes at the beginning of targets, and the characters of
    the training text.
    """
    path = Path(path)
    return (
        path,
        path.with_name("vocab.source.model"),
        path.with_name("truecase.txt"),
        path.with_name("characters.json"),
    )


def trained_tokenizer(
    sentences: Iterable[str],
    vocab_size: int,
    lowercase: bool = False,
    vocab_type: VocabType = "bpe",
    symbols: Sequence[str] = (),
    *,
    must_have_size: bool = True,
) -> Tokenizer:
    """Trains a vocabulary (section 5.1 of the paper).

    Text is not normalised (SentencePiece's default would rewrite characters such as "½"), and characters without an
    entry are spelled in bytes. Decoding therefore restores the text exactly, except for runs of spaces with "bpe" and
    "unigram". The same sentences give the same model file.

    Args:
        sentences: text of both languages, without line breaks.
        vocab_size: number of vocabulary entries, including special symbols; for "char" and "byte", the largest number.
        lowercase: whether the model lowercases text before encoding it, character by character, in Python and in
            graphs.
        vocab_type: "bpe" (byte-pair encoding), "unigram" (a unigram language model), "char" (characters) or "byte"
            (UTF-8 bytes, and a separate entry for the space).
        symbols: words that become a single token wherever they begin a word, such as the labels of a task.
        must_have_size: whether it is an error if the text is too small for `vocab_size` entries of "bpe" or "unigram";
            otherwise the vocabulary has fewer entries.

    Returns:
        The tokenizer.

    Raises:
        InputError: there is no text, or `vocab_size` is too large or too small for it (`VocabularySizeError` for "bpe"
            and "unigram"); the message names the limit.
        ValueError: `vocab_type` is unknown.

    Reference: https://github.com/google/sentencepiece
    """
    if vocab_type not in get_args(VocabType):
        raise ValueError(f"vocab_type must be one of {', '.join(get_args(VocabType))}; got {vocab_type!r}")
    try:
        with _normalization(lowercase) as normalization:
            options = {**normalization, "user_defined_symbols": [BLANK + symbol for symbol in symbols]}
            if vocab_type in ("bpe", "unigram"):
                # Omitted by default: explicit settings are stored in the model, and models are compared by their bytes.
                limit = {} if must_have_size else {"hard_vocab_limit": False}
                sizes = {"vocab_size": vocab_size, **limit}
                serialized = _train(sentences, model_type=vocab_type, **sizes, **options)
            else:
                # Without other characters in the training text, bytes spell every character but the space.
                text = sentences if vocab_type == "char" else [" "]
                settings = {"model_type": "char", "use_all_vocab": True, "remove_extra_whitespaces": False}
                serialized = _drop_rarest(_train(text, **settings, **options), vocab_size)
    except RuntimeError as error:
        raise _training_error(str(error), vocab_size) from error
    return Tokenizer(_without_paths(serialized))


def _train(sentences: Iterable[str], **settings: Any) -> bytes:
    """Trains a SentencePiece model with the settings of all vocabularies and the given ones; returns the model file."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=itertools.chain.from_iterable(map(_split_long, sentences)),
        model_writer=model,
        byte_fallback=True,
        character_coverage=_CHARACTER_COVERAGE,
        max_sentencepiece_length=MAX_PIECE_CHARACTERS,
        pad_id=PAD_ID,
        eos_id=EOS_ID,
        unk_id=UNK_ID,
        bos_id=-1,
        minloglevel=2,
        **settings,
    )
    return model.getvalue()


def _split_long(sentence: str) -> list[str]:
    """Splits a sentence that is too long for SentencePiece, which would skip it."""
    return split_text(sentence, _is_short) if not _is_short(sentence) else [sentence]


def _is_short(sentence: str) -> bool:
    return len(sentence.encode()) <= _LONGEST_SENTENCE


def _drop_rarest(serialized: bytes, vocab_size: int) -> bytes:
    """Removes the rarest characters beyond `vocab_size` entries from a character model; the space must stay."""
    model = sentencepiece_model_pb2.ModelProto.FromString(serialized)
    smallest = [entry.piece for entry in model.pieces].index(BLANK) + 1  # the most frequent characters come first
    if vocab_size < smallest:
        raise InputError(f"vocab_size={vocab_size} is too small; the smallest valid size is {smallest}")
    del model.pieces[vocab_size:]
    model.trainer_spec.vocab_size = len(model.pieces)
    return model.SerializeToString(deterministic=True)


@contextlib.contextmanager
def _normalization(lowercase: bool) -> Iterator[dict[str, str]]:
    """Yields the SentencePiece option for normalising text before tokenization."""
    if not lowercase:
        yield {"normalization_rule_name": "identity"}
        return
    characters = (chr(code) for code in range(sys.maxunicode + 1) if not _SURROGATES[0] <= code <= _SURROGATES[1])
    rules = ((character, character.lower()) for character in characters)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lowercase.tsv"
        lines = (f"{ord(old):X}\t{' '.join(f'{ord(c):X}' for c in new)}\n" for old, new in rules if new != old)
        path.write_text("".join(lines))
        yield {"normalization_rule_tsv": str(path)}


def _without_paths(serialized: bytes) -> bytes:
    """Removes the path of the temporary rules file from a model, so that the same text gives the same model file."""
    model = sentencepiece_model_pb2.ModelProto.FromString(serialized)
    if not model.normalizer_spec.normalization_rule_tsv:
        return serialized
    model.normalizer_spec.normalization_rule_tsv = ""
    return model.SerializeToString(deterministic=True)


class VocabularySizeError(InputError):
    """The vocabulary size is not possible for the text; `nearest` is the largest or smallest possible size."""

    def __init__(self, message: str, nearest: int) -> None:
        super().__init__(message)
        self.nearest = nearest


def _training_error(message: str, vocab_size: int) -> InputError:
    """Converts an error message of SentencePiece into one that tells the user what to change."""
    if limit := _TOO_MANY_ENTRIES.search(message):
        return VocabularySizeError(
            f"vocab_size={vocab_size} is more than the text allows; the largest valid size is {limit[1]}", int(limit[1])
        )
    if limit := _TOO_FEW_ENTRIES.search(message):
        return VocabularySizeError(
            f"vocab_size={vocab_size} is too small for the text's characters; the smallest valid size is {limit[1]}",
            int(limit[1]),
        )
    return InputError(f"no vocabulary of {vocab_size} entries could be trained: {message}")
