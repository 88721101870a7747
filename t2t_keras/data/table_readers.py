"""Reads sentence pairs from tables: separated values, JSON lines and Parquet."""

import itertools
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, BinaryIO

from t2t_keras.data.cleaning import Pair
from t2t_keras.data.sources.corpora_files import decoded_lines, raw_lines
from t2t_keras.errors import InputError, optional_module
from t2t_keras.text.language_codes import Languages, best_match
from t2t_keras.text.repair import surrogates_joined
from t2t_keras.text.spreadsheets import Row, comma_separated_rows, pairs_of_columns, tab_separated_rows

# Names of columns or fields for sources and targets, besides the codes of their languages.
_NAMES = (("source", "target"), ("src", "tgt"), ("src", "trg"), ("source_text", "target_text"), ("src", "ref"))
_NESTED = "translation"  # the field of Hugging Face's data sets, which holds texts by language
_ROWS_AT_ONCE = 10_000


def read_tsv(file: BinaryIO, place: str, languages: Languages) -> Iterator[Pair]:
    """Yields the pairs of tab-separated values; see `readers.PairReader`."""
    rows = tab_separated_rows(decoded_lines(raw_lines(file, place), place))
    return _pairs_of_rows(rows, place, languages)


def read_csv(file: BinaryIO, place: str, languages: Languages) -> Iterator[Pair]:
    """Yields the pairs of comma-separated values; see `readers.PairReader`."""
    rows = comma_separated_rows(decoded_lines(raw_lines(file, place), place), place)
    return _pairs_of_rows(rows, place, languages, most_columns=2)


def _pairs_of_rows(
    rows: Iterator[Row], place: str, languages: Languages, most_columns: int | None = None
) -> Iterator[Pair]:
    """Yields the columns that a header names or, without such a header, the first two of at most `most_columns`."""
    first = next(rows, None)
    if first is None:
        return
    header = [cell.strip() for cell in first[1]]
    names = _sides(header, languages)
    if names:
        yield from pairs_of_columns(rows, place, (header.index(names[0]), header.index(names[1])))
        return
    if most_columns and len(header) > most_columns:  # the text may contain commas
        raise InputError(
            f"{place}: {len(header)} columns; expected two, or a header that names 'source' and 'target', or "
            f"{languages.source!r} and {languages.target!r}"
        )
    yield from pairs_of_columns(itertools.chain([first], rows), place)


def read_jsonl(file: BinaryIO, place: str, languages: Languages) -> Iterator[Pair]:
    """Yields the pairs of JSON objects, one per line; see `readers.PairReader`.

    The texts are in the fields "source" and "target", in fields named by language codes, or in an object "translation"
    with such fields.
    """
    for number, line in enumerate(decoded_lines(raw_lines(file, place), place), start=1):
        if not line.strip():
            continue
        here = f"{place}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{here}: expected a JSON object: {error}") from error
        if not isinstance(record, dict):
            raise InputError(f"{here}: expected a JSON object, got {type(record).__name__}")
        yield _pair_of_record(record, here, languages)


def read_parquet(file: BinaryIO, place: str, languages: Languages) -> Iterator[Pair]:
    """Yields the pairs of a Parquet file, with columns like the fields of `read_jsonl`; see `readers.PairReader`."""
    parquet = optional_module(
        "pyarrow.parquet", f"{place}: reading Parquet needs the package pyarrow: pip install '.[data]'"
    )
    arrow = optional_module("pyarrow", "")
    try:
        table = parquet.ParquetFile(file)
        names = table.schema_arrow.names
        columns = _sides(names, languages) or ([_NESTED] if _NESTED in names else None)
        if columns is None:
            raise _unnamed(place, "columns", names, languages)
        batches = table.iter_batches(_ROWS_AT_ONCE, columns=list(columns))
        records = itertools.chain.from_iterable(batch.to_pylist() for batch in batches)
        for number, record in enumerate(records, start=1):
            yield _pair_of_record(record, f"{place}, row {number}", languages)
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{place}: cannot be read as Parquet: {' '.join(str(error).split())[:200]}") from error


def _sides(names: Collection[str], languages: Languages) -> tuple[str, str] | None:
    """Returns the names of the source and of the target among names of columns or fields, or None."""
    source, target = (best_match(language, names) for language in languages)
    if source is not None and target is not None and source != target:
        return source, target
    by_lowercase = {name.lower(): name for name in reversed(list(names))}
    for pair in _NAMES:
        if all(name in by_lowercase for name in pair):
            return by_lowercase[pair[0]], by_lowercase[pair[1]]
    return None


def _pair_of_record(record: Mapping[str, Any], place: str, languages: Languages) -> Pair:
    """Returns the texts of a record, which may be in an object `_NESTED`; a missing value is an empty text."""
    if isinstance(record.get(_NESTED), dict):
        record = record[_NESTED]
    names = _sides(record, languages)
    if names is None:
        raise _unnamed(place, "fields", record, languages)
    source, target = (record[name] if record[name] is not None else "" for name in names)
    for name, text in zip(names, (source, target), strict=True):
        if not isinstance(text, str):
            raise InputError(f"{place}: {name!r} must be a text, got {type(text).__name__}")
    return surrogates_joined(source), surrogates_joined(target)  # JSON may contain half a pair


def _unnamed(place: str, kind: str, names: Collection[str], languages: Languages) -> InputError:
    present = ", ".join(map(repr, list(names)[:20])) or "none"
    return InputError(
        f"{place}: expected {kind} 'source' and 'target', or {languages.source!r} and {languages.target!r} "
        f"(--source_language, --target_language); got {present}"
    )
