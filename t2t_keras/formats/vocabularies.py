"""Vocabularies of other projects: named ids beside SentencePiece models that know nothing of these ids."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t2t_keras.errors import InputError
from t2t_keras.formats.arrangement import Tables
from t2t_keras.symbols import SPECIAL
from t2t_keras.text.given_entries import pieces_of, tokenizer_of
from t2t_keras.text.tokenizer import Tokenizer

# A logit that makes a probability 0 in float32, and that label smoothing hardly notices.
BARRED = -1e4

_LANGUAGE = re.compile(r">>[^<>\s]+<<")


class NamedIds(NamedTuple):
    """The vocabulary of one side.

    Attributes:
        names: piece of each id, "" for ids without one.
        pad: id of padding, or None if it has none.
        eos: id of the end symbol.
        unk: id of the unknown piece.
        model: the SentencePiece model that cuts texts into such pieces.
    """

    names: Sequence[str]
    pad: int | None
    eos: int
    unk: int
    model: bytes


class IdMap(NamedTuple):
    """A vocabulary of this project in place of another project's.

    Attributes:
        tokenizer: of targets, and beside it that of sources.
        target_rows: the old id of each id of targets; None for padding, where there was none.
        source_rows: the same of sources.
        old_sizes: numbers of ids there, of targets and of sources.
        unnamed: ids of targets that are pieces without an id there. They stand for the unknown piece, as they did.
    """

    tokenizer: Tokenizer
    target_rows: list[int | None]
    source_rows: list[int | None]
    old_sizes: tuple[int, int]
    unnamed: list[int]

    def tables(self, path: Path, old: Tables) -> Tables:
        """The matrices of tokens with the rows of the new ids; an InputError names `path` if there are others."""
        targets, sources = self.old_sizes
        sizes = {"matrix of sources": sources, "matrix of targets": targets, "output's matrix": targets}
        for (name, size), table in zip({**sizes, "output's bias": targets}.items(), old, strict=True):
            if table is not None and len(table) != size:
                raise InputError(f"{path}: the {name} has {len(table)} rows, the vocabulary {size} entries")
        bias = None if old.bias is None else _rows(old.bias, self.target_rows)
        barred = [*self.unnamed, *(number for number, row in enumerate(self.target_rows) if row is None)]
        if barred:
            bias = np.zeros(len(self.target_rows), np.float32) if bias is None else bias
            bias[barred] = BARRED
        source, target = _rows(old.source, self.source_rows), _rows(old.target, self.target_rows)
        return Tables(source, target, _rows(old.output, self.target_rows), bias)


# A matrix may have some rows more than there are tokens, up to a multiple of 8 or 64.
_MOST_UNNAMED = 63


def check_covered(path: Path, count: int, rows: int) -> None:
    """Refuses a vocabulary that does not fit a matrix: more entries than rows, or so few that it must be cut off.

    An InputError names its file.
    """
    if count > rows:
        raise InputError(f"{path} has {count} entries, but there are {rows} rows")
    if count < rows - _MOST_UNNAMED:
        raise InputError(f"{path} has {count} entries for {rows} rows: it is cut off, or another model's")


def mapped_vocabulary(folder: Path, target: NamedIds, source: NamedIds) -> IdMap:
    """Makes our vocabularies of another project's; both sides have one id space if their ids have the same names.

    Raises:
        InputError: a model is no SentencePiece model, or two ids have one name; the message names the folder.
    """
    try:
        return _mapped(target, source)
    except ValueError as error:
        raise InputError(f"{folder}: the vocabulary cannot be used: {error}") from error


def _mapped(target: NamedIds, source: NamedIds) -> IdMap:
    sizes = (len(target.names), len(source.names))
    if list(target.names) == list(source.names):
        entries, rows, unnamed = _entries(target, [*pieces_of(target.model), *pieces_of(source.model)])
        cut = [tokenizer_of(entries, side.model, _languages(entries)) for side in (target, source)]
        is_same = cut[0].serialized == cut[1].serialized
        tokenizer = cut[0] if is_same else Tokenizer(cut[0].serialized, cut[1])
        return IdMap(tokenizer, rows, rows, sizes, unnamed)
    entries, rows, unnamed = _entries(target, pieces_of(target.model))
    source_entries, source_rows, _ = _entries(source, pieces_of(source.model))
    of_sources = tokenizer_of(source_entries, source.model, _languages(source_entries))
    tokenizer = tokenizer_of(entries, target.model, _languages(entries))
    return IdMap(Tokenizer(tokenizer.serialized, of_sources), rows, source_rows, sizes, unnamed)


def _entries(side: NamedIds, pieces: Sequence[str]) -> tuple[list[str], list[int | None], list[int]]:
    """Our entries, the old id of each, and which of them had none."""
    others = [number for number in range(len(side.names)) if number not in (side.pad, side.eos, side.unk)]
    names = [side.names[number] or f"<row {number}>" for number in others]
    known = set(names)
    further = [piece for piece in dict.fromkeys(pieces) if piece not in known]
    entries = [*SPECIAL, *names, *further]
    rows = [side.pad, side.eos, side.unk, *others, *[side.unk] * len(further)]
    return entries, rows, list(range(len(entries) - len(further), len(entries)))


def _languages(entries: Sequence[str]) -> list[str]:
    return [entry for entry in entries if is_language(entry)]


def is_language(entry: str) -> bool:
    """Whether an entry is like >>fra<<, which says which language a text is to be translated into."""
    return bool(_LANGUAGE.fullmatch(entry))


def _rows(array: np.ndarray, rows: Sequence[int | None]) -> np.ndarray:
    """A copy of some rows; zeros for None."""
    found = array[[row or 0 for row in rows]]
    found[[row is None for row in rows]] = 0
    return found
