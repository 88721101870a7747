"""Reads and edits SentencePiece models, and builds tokenizers that split text as a model does, but with other ids."""

import collections
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from t2t_keras.symbols import EOS_ID, PAD_ID, SPECIAL, UNK_ID
from t2t_keras.text.pieces import BLANK
from t2t_keras.text.tokenizer import Tokenizer

_Model: Any = sentencepiece_model_pb2.ModelProto
_Entry: Any = _Model.SentencePiece

# Difference between the score of the rarest piece and that of an unknown character.
_COST_OF_UNKNOWN = 10.0
# The score of unused pieces. Byte-pair encoding merges them too, and splits them again at the end; with this score,
# they are merged last.
_LAST = -1e6
_KINDS = (_Entry.CONTROL, _Entry.CONTROL, _Entry.UNKNOWN)


def tokenizer_of(entries: Sequence[str], serialized: bytes, symbols: Sequence[str] = ()) -> Tokenizer:
    """Creates a tokenizer that splits text as a SentencePiece model does, but with different ids.

    Entries that are not pieces of the model are never produced, except for `symbols` and, if the model has no byte
    fallback, single characters.

    Args:
        entries: the piece of each id, beginning with `SPECIAL`.
        serialized: contents of the SentencePiece model file.
        symbols: entries that become a single token wherever they begin a word.

    Raises:
        ValueError: the entries do not begin with `SPECIAL`, lack a piece of the model, or have duplicates, or
            `serialized` is not a SentencePiece model.
    """
    if tuple(entries[:3]) != SPECIAL:
        raise ValueError(f"entries must begin with {', '.join(SPECIAL)}; got {', '.join(entries[:3])}")
    counts = collections.Counter(entries)
    if len(counts) < len(entries):
        raise ValueError(f"entries must be distinct, got {counts.most_common(1)[0][0]!r} several times")
    model = parsed(serialized)
    model_entries = {entry.piece: entry for entry in model.pieces if entry.type not in (*_KINDS, _Entry.UNUSED)}
    if missing := [piece for piece in model_entries if piece not in counts]:
        raise ValueError(f"entries must have all pieces of the model; missing: {missing[0]!r}")
    del model.pieces[:]
    model.pieces.extend(_Entry(piece=piece, type=kind) for piece, kind in zip(SPECIAL, _KINDS, strict=True))
    for piece in entries[3:]:
        if piece in symbols:
            model.pieces.append(_Entry(piece=BLANK + piece, type=_Entry.USER_DEFINED))
        else:
            unused_entry = _Entry(piece=piece, type=_Entry.UNUSED, score=_LAST)
            model.pieces.append(model_entries.get(piece) or unused_entry)
    if not model.trainer_spec.byte_fallback:
        lowest = min((entry.score for entry in model_entries.values() if entry.type == _Entry.NORMAL), default=0.0)
        for entry in model.pieces:
            if entry.type == _Entry.UNUSED and len(entry.piece) == 1:
                entry.type, entry.score = _Entry.NORMAL, lowest - _COST_OF_UNKNOWN
    spec = model.trainer_spec
    spec.pad_id, spec.eos_id, spec.unk_id, spec.bos_id = PAD_ID, EOS_ID, UNK_ID, -1
    spec.pad_piece, spec.eos_piece, spec.unk_piece = SPECIAL
    spec.vocab_size = len(model.pieces)
    return Tokenizer(model.SerializeToString(deterministic=True))


def without_symbols(serialized: bytes, symbols: Collection[str]) -> bytes:
    """Returns a model in which some `symbols` of `tokenizer_of` keep their ids, but are split like any other text."""
    model = parsed(serialized)
    for entry in model.pieces:
        if entry.type == _Entry.USER_DEFINED and entry.piece.removeprefix(BLANK) in symbols:
            entry.type = _Entry.UNUSED
    return model.SerializeToString(deterministic=True)


def word_model(entries: Iterable[str]) -> bytes:
    """Returns a SentencePiece model that splits text only at spaces; each entry is `BLANK` and a word."""
    model = _Model()
    model.pieces.extend(_Entry(piece=piece, type=kind) for piece, kind in zip(SPECIAL, _KINDS, strict=True))
    model.pieces.extend(_Entry(piece=entry, type=_Entry.NORMAL) for entry in entries)
    model.trainer_spec.model_type = model.trainer_spec.WORD
    model.normalizer_spec.name = "identity"
    return model.SerializeToString(deterministic=True)


def pieces_of(serialized: bytes) -> list[str]:
    """Returns the pieces that a SentencePiece model can produce; raises a ValueError as `parsed` does."""
    return [entry.piece for entry in parsed(serialized).pieces if entry.type not in (*_KINDS, _Entry.UNUSED)]


def parsed(serialized: bytes) -> Any:
    """Parses a SentencePiece model file; raises a ValueError if it is not one."""
    try:
        model = _Model.FromString(serialized)
    except DecodeError:
        model = _Model()
    if not model.pieces:
        raise ValueError(f"this is not a SentencePiece model ({len(serialized)} bytes)")
    return model
