"""Readers of parallel text by file format: one mapping, to which a format is added by one entry.

The suffix of a file decides its format. If the suffix is unknown, the first bytes decide. Any of the formats may be
compressed. A file in an unknown format is read as plain lines, one side of the pairs per file.
"""

import contextlib
import dataclasses
import functools
import io
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol, cast

from t2t_keras.data import table_readers, xml_readers
from t2t_keras.data.cleaning import Pair
from t2t_keras.data.sources import corpora_files
from t2t_keras.data.sources.gettext_catalogues import read_catalogue
from t2t_keras.data.sources.parallel_files import ParallelFiles
from t2t_keras.errors import InputError
from t2t_keras.text.language_codes import Languages, best_match, language_of_name

_MAX_NAMES = 10  # of the files of an archive, in messages


class PairReader(Protocol):
    """Reads the pairs of a file that has both sides."""

    def __call__(self, file: BinaryIO, place: str, languages: Languages) -> Iterator[Pair]:
        """Yields the pairs.

        Args:
            file: the decompressed contents.
            place: name of the file, for messages.
            languages: the languages of sources and targets.

        Raises:
            InputError: the contents are damaged, or do not have these languages; the message begins with `place`.
        """


class LineReader(Protocol):
    """Reads the lines of a file that has one side."""

    def __call__(self, file: BinaryIO, place: str) -> Iterator[str]:
        """Yields the lines; see `PairReader`."""


@dataclasses.dataclass(frozen=True)
class Format:
    """A file format, which has both sides of the pairs, or one side, or is refused.

    Attributes:
        name: name of the format, for messages.
        pairs: reads both sides.
        lines: reads the lines of one side.
        advice: an alternative, for a format that is refused.
    """

    name: str
    pairs: PairReader | None = None
    lines: LineReader | None = None
    advice: str = ""


@dataclasses.dataclass(frozen=True)
class PairFile:
    """The pairs of a file that has both sides; each call reads them anew.

    Attributes:
        path: the file.
        read: reads the pairs.
        languages: the languages of sources and targets.
    """

    path: Path
    read: PairReader
    languages: Languages

    def __call__(self) -> Iterator[Pair]:
        """Yields all pairs, each text on one line; raises the InputError of the reader."""
        with corpora_files.opened(self.path) as file:
            for source, target in self.read(file, str(self.path), self.languages):
                yield _on_one_line(source), _on_one_line(target)


def _on_one_line(text: str) -> str:
    """Replaces the line breaks of a text, and the white space around them, by spaces."""
    lines = re.split("[\r\n]", text)
    return " ".join(filter(None, map(str.strip, lines))) if len(lines) > 1 else text


def read_zip(file: BinaryIO, place: str, languages: Languages) -> Iterator[Pair]:
    """Yields the pairs of a ZIP archive: two files named by language, as OPUS has them, or one file with both sides."""
    with zipfile.ZipFile(file) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/") and "__MACOSX/" not in name]
        if {"[Content_Types].xml", "mimetype"} & {*names}:
            raise InputError(f"{place}: an office document; save its text as .txt, .csv or .tsv in UTF-8")
        codes = {name: _language_of(PurePosixPath(name).name, languages) for name in names}
        best = [best_match(language, filter(None, codes.values())) for language in languages]
        sides = [[name for name, code in codes.items() if code and code == match] for match in best]
        if len(sides[0]) == len(sides[1]) == 1 and sides[0] != sides[1]:
            source, target = (_member_lines(archive, name, place) for (name,) in sides)
            yield from corpora_files.paired(source, target, *(f"{place}/{name}" for (name,) in sides))
            return
        with_pairs = [(name, form.pairs) for name in names if (form := _format_of_name(name)) and form.pairs]
        if any(sides) or len(with_pairs) != 1 or with_pairs[0][1] is read_zip:
            listing = ", ".join(names[:_MAX_NAMES]) + (", ..." if len(names) > _MAX_NAMES else "")
            raise InputError(
                f"{place}: expected one file that ends in .{languages.source} and one in .{languages.target}, or one "
                f"file with both sides; it contains {listing or 'no files'}"
            )
        ((name, read),) = with_pairs
        with _member(archive, name, place) as file:
            yield from read(file, f"{place}/{name}", languages)


def _language_of(name: str, languages: Languages) -> str | None:
    """Returns the language code that a file name ends in; it may be one of `languages` that no table contains."""
    last = name.rpartition(".")[2]
    return last if last in languages else language_of_name(name)


def _member_lines(archive: zipfile.ZipFile, name: str, place: str) -> Iterator[str]:
    with _member(archive, name, place) as file:
        yield from corpora_files.decoded_lines(corpora_files.raw_lines(file, f"{place}/{name}"), f"{place}/{name}")


@contextlib.contextmanager
def _member(archive: zipfile.ZipFile, name: str, place: str) -> Iterator[BinaryIO]:
    """Opens the decompressed contents of a file in an archive."""
    try:
        member = archive.open(name)
    except RuntimeError as error:  # encrypted, or compressed in a way that the module does not know
        raise InputError(f"{place}/{name}: cannot be unpacked: {error}") from error
    with member:
        yield corpora_files.decompressed(io.BufferedReader(cast(io.RawIOBase, member)))


_TSV = Format("tab-separated values", table_readers.read_tsv)
_XLIFF = Format("XLIFF", xml_readers.read_xliff)
_JSONL = Format("JSON lines", table_readers.read_jsonl)
_SGM = Format("a test set in SGML", lines=xml_readers.read_sgm_lines)
_CATALOGUE = Format("a gettext catalogue", read_catalogue)
_SUBTITLES = Format("subtitles", advice="give text whose lines correspond, or a .tsv file with both sides")
_DOCUMENT = Format("a document", advice="save its text as .txt, .csv or .tsv in UTF-8")
_WEB_PAGE = Format("a web page", advice="extract its text as .txt or .tsv, one sentence per line")
_JSON = Format("JSON", advice="write one object per line to a .jsonl file")
_STRINGS = Format("a file of messages in one language", advice="convert it to .po, .xliff or .tsv with both languages")
_ARRAYS = Format("a file of arrays or objects", advice="convert it to .parquet, .jsonl or .tsv")
_ARCHIVE = Format("an archive", advice="unpack it")

# The format of each suffix. Suffixes that are also language codes, such as .ts, are recognised by content only.
FORMATS: dict[str, Format] = {
    ".tsv": _TSV,
    ".tab": _TSV,
    ".csv": Format("comma-separated values", table_readers.read_csv),
    ".tmx": Format("a translation memory (TMX)", xml_readers.read_tmx),
    **dict.fromkeys((".xliff", ".xlf", ".sdlxliff", ".mxliff", ".mqxliff"), _XLIFF),
    ".po": _CATALOGUE,
    ".pot": Format("a template of a gettext catalogue", advice="give a .po file, which has translations"),
    ".mo": _CATALOGUE,
    **dict.fromkeys((".jsonl", ".ndjson"), _JSONL),
    ".parquet": Format("Parquet", table_readers.read_parquet),
    **dict.fromkeys((".sgm", ".sgml"), _SGM),
    ".zip": Format("a ZIP archive", read_zip),
    **dict.fromkeys((".srt", ".vtt", ".ass", ".ssa"), _SUBTITLES),
    **dict.fromkeys((".docx", ".doc", ".odt", ".rtf", ".pdf", ".pptx", ".xlsx", ".xls", ".ods", ".epub"), _DOCUMENT),
    **dict.fromkeys((".html", ".htm", ".xhtml"), _WEB_PAGE),
    **dict.fromkeys((".yaml", ".yml", ".properties", ".strings", ".resx", ".arb"), _STRINGS),
    **dict.fromkeys((".pkl", ".npy", ".npz", ".h5", ".hdf5", ".arrow", ".feather", ".avro", ".orc"), _ARRAYS),
    **dict.fromkeys((".tar", ".tgz", ".tbz2", ".txz", ".7z", ".rar", ".lz4"), _ARCHIVE),
    ".json": _JSON,
    ".sdltm": Format("a translation memory of Trados", advice="export it as .tmx"),
    ".tbx": Format("a glossary (TBX)", advice="convert it to a .tsv file with both languages"),
}

# The formats with both sides, each by its first suffix, for the help of programs.
WITH_BOTH_SIDES = " ".join(
    reversed({form: suffix for suffix, form in reversed(FORMATS.items()) if form.pairs}.values())
)

# The formats of XML documents by the name of the root element.
_ROOTS: dict[str, Format] = {
    "tmx": FORMATS[".tmx"],
    "xliff": _XLIFF,
    "dataset": Format("a test set of WMT", xml_readers.read_wmt_xml),
    "TS": Format("a catalogue of Qt", xml_readers.read_qt),
    **dict.fromkeys(("srcset", "refset", "tstset", "mteval"), _SGM),
    **dict.fromkeys(("html", "HTML"), _WEB_PAGE),
}
_OTHER_XML = Format("XML of an unknown kind", advice="supported XML formats: TMX, XLIFF, Qt .ts, WMT test sets")

# The formats of files with unknown suffixes by their first bytes, after a byte order mark.
_SIGNS: dict[bytes, Format] = {
    # An archive whose first file has one of these names.
    rb"PK\x03\x04[\s\S]{26}(?:\[Content_Types\]\.xml|mimetype|_rels/|word/)": _DOCUMENT,
    rb"PK\x03\x04": FORMATS[".zip"],
    corpora_files.PARQUET: FORMATS[".parquet"],
    rb"\xde\x12\x04\x95|\x95\x04\x12\xde": _CATALOGUE,
    rb'(?:#[^\n]*\n|\s)*msgid ""\s*\n\s*msgstr "': _CATALOGUE,
    rb"%PDF-\d|\{\\rtf": _DOCUMENT,
    rb"WEBVTT\s|\s*\d+\s*\n\d\d:\d\d:\d\d[,.]\d{3} -->": _SUBTITLES,
}


def known_format(path: str | Path) -> Format | None:
    """Returns the format of a file, or None if it has plain lines.

    Raises:
        InputError: the file cannot be read.
    """
    form = _format_of_name(Path(path).name)
    if form is not None:
        return form
    with corpora_files.opened(path) as file:
        start = corpora_files.start_of(file)
    for pattern, form in _SIGNS.items():
        if re.match(pattern, start.removeprefix(b"\xef\xbb\xbf")):
            return form
    root = xml_readers.root_of(start)
    if root in _ROOTS:
        return _ROOTS[root]
    is_xml = Path(corpora_files.without_compression(str(path))).suffix.lower() == ".xml"
    return _OTHER_XML if is_xml or (root and re.match(rb"\W{0,3}<\0?\?\0?x", start)) else None


def _format_of_name(name: str) -> Format | None:
    return FORMATS.get(PurePosixPath(corpora_files.without_compression(name)).suffix.lower())


def has_both_sides(path: str | Path) -> bool:
    """Returns whether a file has both sides of the pairs; raises an InputError if it cannot be read or is refused."""
    form = known_format(path)
    return form is not None and _accepted(form, path).pairs is not None


def read_lines(path: str | Path) -> Iterator[str]:
    """Yields the lines of a file that has one side.

    Raises:
        InputError: as in `corpora_files.read_lines`, or the format is refused or has both sides.
    """
    return _side(path)()


def pair_source(
    source: str | Path, target: str | Path | None, languages: Languages, default: str | None = None
) -> Callable[[], Iterator[Pair]]:
    """Returns a function that reads pairs, and can be called several times.

    Args:
        source: a file with both sides, or the file of the sources.
        target: the file of the targets, or None.
        languages: the languages of sources and targets.
        default: suffix of the format of a file with both sides whose format is unknown; None refuses such a file.

    Raises:
        InputError: a file cannot be read, its format is refused, or it has both sides where one is expected, or one
            where both are expected.
    """
    if target is not None:
        sides = [_side(path) for path in (source, target)]
        if all(side.func is corpora_files.read_lines for side in sides):
            return ParallelFiles(Path(source), Path(target))
        return lambda: corpora_files.paired(sides[0](), sides[1](), source, target)
    form = known_format(source) or FORMATS.get(default or "")
    if form is None:
        raise InputError(
            f"{source}: plain text has one side; give its translation too, or a file with both sides "
            f"({WITH_BOTH_SIDES})"
        )
    if _accepted(form, source).pairs is None:
        raise InputError(f"{source}: the file has one side ({form.name}); give the file of the other side too")
    return PairFile(Path(source), cast(PairReader, form.pairs), languages)


def read_pairs(source: str | Path, target: str | Path | None, languages: Languages) -> Iterator[Pair]:
    """Yields the pairs of one or two files; see `pair_source`."""
    return pair_source(source, target, languages)()


def _side(path: str | Path) -> functools.partial[Iterator[str]]:
    """Returns a function that reads the lines of a file that has one side."""
    form = known_format(path)
    if form is None:
        return functools.partial(corpora_files.read_lines, path)
    if _accepted(form, path).lines is None:
        raise InputError(f"{path}: the file has both sides ({form.name}); give it as the source, without a target file")
    return functools.partial(_read_side, path, cast(LineReader, form.lines))


def _read_side(path: str | Path, read: LineReader) -> Iterator[str]:
    with corpora_files.opened(path) as file:
        yield from read(file, str(path))


def _accepted(form: Format, path: str | Path) -> Format:
    """Returns a format; raises an InputError if it is refused."""
    if form.pairs is None and form.lines is None:
        raise InputError(f"{path}: {form.name} cannot be read; {form.advice}")
    return form
