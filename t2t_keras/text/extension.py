"""Extends the vocabulary of a trained model; existing entries keep their ids."""

from collections.abc import Iterable, Sequence
from typing import Any

from sentencepiece import sentencepiece_model_pb2

from t2t_keras.errors import InputError
from t2t_keras.text.pieces import BLANK
from t2t_keras.text.subwords import MAGIC
from t2t_keras.text.tokenizer import Tokenizer, VocabType, trained_tokenizer

# `Any`, because the package has no type annotations.
_Model: Any = sentencepiece_model_pb2.ModelProto
_Entry: Any = _Model.SentencePiece


def with_symbols(tokenizer: Tokenizer, symbols: Sequence[str]) -> Tokenizer:
    """Adds symbols to a vocabulary, which become a single token wherever they begin a word.

    Symbols that the vocabulary already has keep their ids. If there are no new ones, `tokenizer` itself is returned.
    """
    new_symbols = [symbol for symbol in dict.fromkeys(symbols) if symbol not in tokenizer.symbols]
    if not new_symbols:
        return tokenizer
    entries = [_Entry(piece=BLANK + symbol, type=_Entry.USER_DEFINED) for symbol in new_symbols]
    return _as_tokenizer(_model_of(tokenizer), entries)


def with_pieces(
    tokenizer: Tokenizer, count: int, sentences: Iterable[str], vocab_type: VocabType, *, lowercase: bool = False
) -> Tokenizer:
    """Adds the most frequent new pieces of a text to a vocabulary.

    The new pieces are the first entries of a vocabulary trained on the text, single characters first. Except with
    "unigram", they are merged after all existing pieces. Pieces that the extended vocabulary can never produce are left
    out.

    Args:
        tokenizer: the vocabulary.
        count: number of pieces to add.
        sentences: the text.
        vocab_type: type of the vocabulary.
        lowercase: whether the vocabulary lowercases text.

    Raises:
        InputError: the text has fewer than `count` new pieces, or the vocabulary cannot be extended because it consists
            of bytes or of tensor2tensor's subwords.
    """
    if vocab_type == "byte":
        raise InputError("--extend_vocab: a vocabulary of bytes already covers every text")
    model = _model_of(tokenizer)
    # Large enough that at least `count` of the entries are new, if the text has that many new pieces.
    size = len(model.pieces) + 2 * count
    text_tokenizer = trained_tokenizer(
        sentences, size, lowercase, vocab_type, list(tokenizer.symbols), must_have_size=False
    )
    known_pieces = {entry.piece for entry in model.pieces}
    new_entries = [
        entry
        for entry in _model_of(text_tokenizer).pieces
        if entry.type == _Entry.NORMAL and entry.piece not in known_pieces
    ]
    new_entries.sort(key=lambda entry: len(entry.piece) > 1)
    if vocab_type != "unigram":  # scores of "unigram" are log-probabilities; other scores are the order of merging
        lowest = min(entry.score for entry in model.pieces)
        for rank, entry in enumerate(new_entries, start=1):
            entry.score = lowest - rank
    speller = _without_first_space(_as_tokenizer(model, new_entries))
    reachable_entries = [entry for entry in new_entries if len(speller.encode(_text(entry))) == 1]
    if len(reachable_entries) < count:
        raise InputError(f"--extend_vocab={count}: the text has only {len(reachable_entries)} new pieces")
    return _as_tokenizer(model, reachable_entries[:count])


def with_entries_of(tokenizer: Tokenizer, extension: Tokenizer) -> Tokenizer:
    """Adds the entries of `extension` that `tokenizer` lacks; `extension` must begin with those of `tokenizer`."""
    return _as_tokenizer(_model_of(tokenizer), _model_of(extension).pieces[tokenizer.vocab_size :])


def spellings(old: Tokenizer, new: Tokenizer) -> list[list[int]]:
    """Returns, for each additional entry of `new`, the ids of `old` that spell it; empty if both are the same.

    Raises:
        ValueError: `new` does not begin with the entries of `old`, or normalises text differently.
    """
    if old.serialized == new.serialized:
        return []
    old_model, new_model = _model_of(old), _model_of(new)
    count = len(old_model.pieces)
    if new_model.pieces[:count] != old_model.pieces[:] or new_model.normalizer_spec != old_model.normalizer_spec:
        raise ValueError("new must begin with the entries of old")
    speller = _without_first_space(old)
    return [speller.encode(_text(entry)) for entry in new_model.pieces[count:]]


def _model_of(tokenizer: Tokenizer) -> Any:
    if tokenizer.serialized.startswith(MAGIC):
        raise InputError("a vocabulary of tensor2tensor's subwords cannot be extended")
    return _Model.FromString(tokenizer.serialized)


def _as_tokenizer(model: Any, entries: Sequence[Any]) -> Tokenizer:
    extension = _Model()
    extension.CopyFrom(model)
    extension.pieces.extend(entries)
    extension.trainer_spec.vocab_size = len(extension.pieces)
    return Tokenizer(extension.SerializeToString(deterministic=True))


def _without_first_space(tokenizer: Tokenizer) -> Tokenizer:
    """Returns a tokenizer that neither puts a space in front of a text nor removes spaces."""
    model = _model_of(tokenizer)
    model.normalizer_spec.add_dummy_prefix = False
    model.normalizer_spec.remove_extra_whitespaces = False
    return Tokenizer(model.SerializeToString(deterministic=True))


def _text(entry: Any) -> str:
    return entry.piece.replace(BLANK, " ")
