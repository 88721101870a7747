"""The formats of translators' files by suffix, and the class that reads a file and fills in its translations."""

import bisect
import codecs
import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from t2t_keras.errors import InputError, explained
from t2t_keras.localization.column_units import csv_units, tsv_units
from t2t_keras.localization.json_units import json_units
from t2t_keras.localization.markdown_units import markdown_units
from t2t_keras.localization.po_units import po_charset, po_units
from t2t_keras.localization.property_units import apple_units, property_units
from t2t_keras.localization.qt_units import qt_units
from t2t_keras.localization.subtitle_units import srt_units, vtt_units
from t2t_keras.localization.tmx_units import tmx_units
from t2t_keras.localization.unit_text import UnitText, spelled
from t2t_keras.localization.units import Edit, Options, Unit, edited
from t2t_keras.localization.xliff_units import xliff_units
from t2t_keras.localization.yaml_units import yaml_units
from t2t_keras.text.markup.documents import MarkedDocument

_BYTE_ORDER_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_XML_ENCODING = re.compile(rb"""\A\s*<\?xml[^>]*?encoding\s*=\s*["']([\w.:-]+)["']""")


def _xml_encoding(content: bytes) -> str | None:
    match = _XML_ENCODING.match(content)
    return match[1].decode() if match else None


def _properties_encoding(content: bytes) -> str:
    """Returns UTF-8, as Java 9 reads these files, unless a file is Latin-1, as Java 8 does."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return "iso-8859-1"
    return "utf-8"


class Format(NamedTuple):
    """A format of translators' files.

    Attributes:
        units: returns the units of a file's text, in order; an InputError names the line but not the file.
        encoding: returns the character encoding that a file declares, or None for UTF-8.
        is_xml: whether characters that the encoding lacks can be written as references.
    """

    units: Callable[[str, Options], list[Unit]]
    encoding: Callable[[bytes], str | None] = lambda content: None
    is_xml: bool = False


FORMATS = {
    **dict.fromkeys((".po", ".pot"), Format(po_units, po_charset)),
    **dict.fromkeys((".xliff", ".xlf"), Format(xliff_units, _xml_encoding, is_xml=True)),
    ".tmx": Format(tmx_units, _xml_encoding, is_xml=True),
    ".ts": Format(qt_units, _xml_encoding, is_xml=True),
    ".srt": Format(srt_units),
    ".vtt": Format(vtt_units),
    ".csv": Format(csv_units),
    ".tsv": Format(tsv_units),
    **dict.fromkeys((".json", ".arb"), Format(json_units)),
    **dict.fromkeys((".yaml", ".yml"), Format(yaml_units)),
    ".properties": Format(property_units, _properties_encoding),
    ".strings": Format(apple_units),
    **dict.fromkeys((".md", ".markdown"), Format(markdown_units)),
}

# Suffixes of files that are neither translators' files nor lines of text, with advice.
_REFUSED = {
    **dict.fromkeys((".html", ".htm", ".xhtml"), "give --markup=html"),
    ".xml": "give --markup=xml",
    ".mo": "convert it with msgunfmt to a .po file",
    **dict.fromkeys((".docx", ".odt", ".pptx", ".odp", ".xlsx", ".ods", ".epub", ".pdf", ".rtf", ".doc"), ""),
    **dict.fromkeys((".sgm", ".sgml", ".resx", ".plist", ".stringsdict", ".xcstrings", ".idml", ".ass", ".ssa"), ""),
    **dict.fromkeys((".zip", ".tar", ".7z", ".zst"), "unpack it first"),
}
_COMPRESSED = (".gz", ".bz2", ".xz")


def format_suffix(name: str) -> str | None:
    """Returns the suffix of a translators' file, or None for a file of lines of text.

    Raises:
        InputError: the suffix is that of a different kind of file, or of a compressed translators' file.
    """
    *_, before, suffix = ["", "", *(each.lower() for each in PurePath(name).suffixes)]
    if suffix in FORMATS:
        return suffix
    if suffix in _REFUSED or (suffix in _COMPRESSED and (before in FORMATS or before in _REFUSED)):
        advice = "decompress it first" if suffix in _COMPRESSED else _REFUSED[suffix]
        known = f"formats besides lines of text: {', '.join(FORMATS)}; --input_format=text reads lines"
        raise InputError(f"{name}: not a file of lines{f'; {advice}' if advice else ''} ({known})")
    return None


class TranslatableFile:
    """A translators' file: its units, their texts as documents, and the file with translations.

    Args:
        content: the bytes of the file.
        name: name of the file, for messages.
        suffix: suffix of the format, a key of `FORMATS`.
        options: choices of the format.
        all_units: whether to translate units that have a translation.

    Attributes:
        units: all units.
        pending: the units to translate, with their texts.
        documents: the documents of the pending units, in order.
        lines: for each document, the line of the file in which its unit begins.

    Raises:
        InputError: the file is not valid; names the file and the line.
    """

    def __init__(
        self, content: bytes, name: str, suffix: str, options: Options | None = None, *, all_units: bool = False
    ) -> None:
        options = options or Options()
        self._format, self._name = FORMATS[suffix], name
        self._mark, self._encoding, self._text = self._decode(content)
        # Readers see line feeds only; edits are made to the text as it is.
        text = re.sub("\r\n?", "\n", self._text)
        self._pairs = [match.start() - n for n, match in enumerate(re.finditer("\r\n", self._text))]
        try:
            self.units = self._format.units(text, options)
        except InputError as error:
            raise InputError(f"{name}, {error}") from None
        wanted = [unit for unit in self.units if all_units or not unit.is_translated]
        self.pending = [
            (unit, unit_text)
            for unit in wanted
            if (unit_text := UnitText(unit, options.target_language)).documents or not unit.replaces and spelled(unit)
        ]
        self.documents: list[MarkedDocument] = []
        self.lines: list[int] = []
        newlines = [match.start() for match in re.finditer("\n", text)]
        for unit, unit_text in self.pending:
            self.documents += unit_text.documents
            self.lines += [bisect.bisect_left(newlines, unit.start) + 1] * len(unit_text.documents)

    def filled(self, results: Sequence[str | None]) -> bytes:
        """Returns the file with translations; everything else is unchanged.

        Args:
            results: the translated `documents`; None for a document without a translation, whose unit stays unchanged.

        Raises:
            InputError: a translation has characters that the file's encoding lacks.
        """
        remaining = iter(results)
        newline = "\r\n" if "\r\n" in self._text else "\r" if "\r" in self._text else "\n"
        edits: list[Edit] = []
        for unit, unit_text in self.pending:
            documents = list(itertools.islice(remaining, len(unit_text.documents)))
            translated = [document for document in documents if document is not None]
            if len(translated) < len(documents):
                continue
            translation = unit_text.filled(translated)
            if not (unit.replaces and translation == spelled(unit)):
                edits += unit.edits(translation)
        edits = [
            Edit(self._original_place(edit.start), self._original_place(edit.end), edit.text.replace("\n", newline))
            for edit in edits
        ]
        errors = "xmlcharrefreplace" if self._format.is_xml else "strict"
        try:
            return self._mark + edited(self._text, edits).encode(self._encoding, errors)
        except UnicodeEncodeError as error:
            character = error.object[error.start]
            raise InputError(
                f"{self._name}: its encoding {self._encoding} lacks {character!r} of a translation; convert it to UTF-8"
            ) from None

    def _decode(self, content: bytes) -> tuple[bytes, str, str]:
        """Returns the byte order mark, the encoding and the text of the file."""
        marks = [each for each in _BYTE_ORDER_MARKS if content.startswith(each[0])]
        mark, encoding = marks[0] if marks else (b"", self._format.encoding(content) or "utf-8")
        try:
            return mark, encoding, content[len(mark) :].decode(encoding)
        except LookupError:
            raise InputError(f"{self._name}: unknown character encoding {encoding!r}") from None
        except UnicodeError as error:
            line = content.count(b"\n", 0, len(mark) + getattr(error, "start", 0)) + 1
            problem = f"not valid {encoding} ({getattr(error, 'reason', error)}); convert the file to UTF-8"
            raise InputError(f"{self._name}, line {line}: {problem}") from None

    def _original_place(self, place: int) -> int:
        """Converts a position in the text with line feeds to one in the text of the file."""
        return place + bisect.bisect_left(self._pairs, place)


def read_units(path: str | PurePath, options: Options | None = None) -> list[Unit]:
    """Returns the units of a file whose suffix is in `FORMATS`.

    Raises:
        InputError: the file cannot be read, or is not valid; names the file.
    """
    with explained(f"{path}: cannot be read"):
        content = Path(path).read_bytes()
    return TranslatableFile(content, str(path), Path(path).suffix.lower(), options).units
