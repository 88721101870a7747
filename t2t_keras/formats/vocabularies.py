"""Converts vocabularies of other projects, whose ids are not those of their SentencePiece models."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t2t_keras.errors import InputError
from t2t_keras.formats.arrangement import Tables
from t2t_keras.symbols import SPECIAL
from t2t_keras.text.sentencepiece_models import pieces_of, tokenizer_of
from t2t_keras.text.tokenizer import Tokenizer

# A logit that gives a probability of 0 in float32, but not so low that label smoothing gives a huge loss.
BARRED = -1e4

_LANGUAGE = re.compile(r">>[^<>\s]+<<")


class NamedIds(NamedTuple):
    """Another project's vocabulary of sources or of targets.

    Attributes:
        names: the piece of each id; "" for ids without a piece.
        pad: the id of padding, or None if there is none.
        eos: the id of the end symbol.
        unk: the id of the unknown piece.
        model: the serialized SentencePiece model that splits texts into the pieces.
    """

    names: Sequence[str]
    pad: int | None
    eos: int
    unk: int
    model: bytes


class IdMap(NamedTuple):
    """A vocabulary of this project that replaces another project's, with the old id of each new one.

    Attributes:
        tokenizer: the tokenizer of targets; its `source` is that of sources.
        target_rows: the old id of each target id; None for padding if the old vocabulary has none.
        source_rows: the old id of each source id, likewise.
        old_sizes: the old numbers of target ids and of source ids.
        unnamed: target ids of pieces of the SentencePiece model that had no old id. They map to the old unknown piece.
    """

    tokenizer: Tokenizer
    target_rows: list[int | None]
    source_rows: list[int | None]
    old_sizes: tuple[int, int]
    unnamed: list[int]

    def tables(self, path: Path, old: Tables) -> Tables:
        """Returns the matrices with their rows in the order of the new ids.

        Raises:
            InputError: a matrix does not have one row per old id; names `path`.
        """
        targets, sources = self.old_sizes
        sizes = {"matrix of sources": sources, "matrix of targets": targets, "output's matrix": targets}
        for (name, size), table in zip({**sizes, "output's bias": targets}.items(), old, strict=True):
            if table is not None and len(table) != size:
                raise InputError(f"{path}: the {name} has {len(table)} rows, the vocabulary {size} entries")
        bias = None if old.bias is None else _rows(old.bias, self.target_rows)
        barred_rows = [*self.unnamed, *(number for number, row in enumerate(self.target_rows) if row is None)]
        if barred_rows:
            bias = np.zeros(len(self.target_rows), np.float32) if bias is None else bias
            bias[barred_rows] = BARRED
        source, target = _rows(old.source, self.source_rows), _rows(old.target, self.target_rows)
        return Tables(source, target, _rows(old.output, self.target_rows), bias)


def vocabulary_sizes(tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns the fields of a `DataConfig` that depend on the vocabularies."""
    return {name: size or 0 for name, size in tokenizer.sizes.items()}


# A matrix may have more rows than there are tokens, because its rows are padded to a multiple of 8 or 64.
_MAX_UNNAMED = 63


def check_covered(path: Path, count: int, rows: int) -> None:
    """Checks that the size of a vocabulary fits a matrix.

    Raises:
        InputError: there are more entries than rows, or so few that the vocabulary must be truncated; names the file.
    """
    if count > rows:
        raise InputError(f"{path} has {count} entries, but there are {rows} rows")
    if count < rows - _MAX_UNNAMED:
        raise InputError(
            f"{path} has {count} entries for {rows} rows: it is truncated, or belongs to a different model"
        )


def mapped_vocabulary(folder: Path, target: NamedIds, source: NamedIds) -> IdMap:
    """Converts another project's vocabularies; both sides share one id space if their ids have the same names.

    Raises:
        InputError: a model is not a SentencePiece model, or two ids have the same name; names the folder.
    """
    try:
        return _map_ids(target, source)
    except ValueError as error:
        raise InputError(f"{folder}: the vocabulary cannot be used: {error}") from error


def _map_ids(target: NamedIds, source: NamedIds) -> IdMap:
    sizes = (len(target.names), len(source.names))
    if list(target.names) == list(source.names):
        entries, rows, unnamed = _entries(target, [*pieces_of(target.model), *pieces_of(source.model)])
        tokenizers = [tokenizer_of(entries, side.model, _languages(entries)) for side in (target, source)]
        is_same = tokenizers[0].serialized == tokenizers[1].serialized
        tokenizer = tokenizers[0] if is_same else Tokenizer(tokenizers[0].serialized, tokenizers[1])
        return IdMap(tokenizer, rows, rows, sizes, unnamed)
    entries, rows, unnamed = _entries(target, pieces_of(target.model))
    source_entries, source_rows, _ = _entries(source, pieces_of(source.model))
    source_tokenizer = tokenizer_of(source_entries, source.model, _languages(source_entries))
    tokenizer = tokenizer_of(entries, target.model, _languages(entries))
    return IdMap(Tokenizer(tokenizer.serialized, source_tokenizer), rows, source_rows, sizes, unnamed)


def _entries(side: NamedIds, pieces: Sequence[str]) -> tuple[list[str], list[int | None], list[int]]:
    """Returns the new entries, the old id of each, and the new ids of pieces that had none."""
    numbers = [number for number in range(len(side.names)) if number not in (side.pad, side.eos, side.unk)]
    names = [side.names[number] or f"<row {number}>" for number in numbers]
    known_names = set(names)
    additions = [piece for piece in dict.fromkeys(pieces) if piece not in known_names]
    entries = [*SPECIAL, *names, *additions]
    rows = [side.pad, side.eos, side.unk, *numbers, *[side.unk] * len(additions)]
    return entries, rows, list(range(len(entries) - len(additions), len(entries)))


def _languages(entries: Sequence[str]) -> list[str]:
    return [entry for entry in entries if is_language(entry)]


def is_language(entry: str) -> bool:
    """Returns whether an entry is a language code such as >>fra<<, which selects the target language of a text."""
    return bool(_LANGUAGE.fullmatch(entry))


def _rows(array: np.ndarray, rows: Sequence[int | None]) -> np.ndarray:
    """Returns a copy of the given rows, with zeros for None."""
    result = array[[row or 0 for row in rows]]
    result[[row is None for row in rows]] = 0
    return result
