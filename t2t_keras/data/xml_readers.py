"""Reads sentence pairs from XML: translation memories (TMX), XLIFF, Qt's catalogues, and the test sets of WMT.

Documents are read as streams. Entities that a document declares are refused, and no other file is ever opened.
"""

import collections
import html
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import BinaryIO, NamedTuple
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from t2t_keras.data.cleaning import Pair
from t2t_keras.errors import InputError
from t2t_keras.text.language_codes import Languages, best_match

_PART_BYTES = 1 << 16
_DEEPEST = 100  # nested elements
_MAX_CODES = 20  # of languages, in messages

# Inline elements whose content is markup of the original document, not text.
_CODES = {"bpt", "ept", "ph", "it", "ut", "x", "bx", "ex", "sc", "ec", "cp", "byte", "sub"}
# Those of them that may stand for a break or a value. A space replaces them between two words.
_SEPARATING = {"ph", "it", "ut", "x", "bx", "ex"}
_UNTRANSLATED = {"new", "needs-translation", "needs-adaptation", "needs-l10n", "initial"}

_SEGMENT = re.compile(r"<seg\b[^<>]*+>([^<]*+(?:<(?!/?seg\b)[^<]*+)*+)</seg\s*>", re.IGNORECASE)


class _Place(NamedTuple):
    """An element and the attributes that it inherits from the elements around it."""

    element: Element
    inherited: Mapping[str, str]


def root_of(start: bytes) -> str | None:
    """Returns the name of the root element in the beginning of an XML document, without its prefix, or None."""
    encoding = "utf-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    text = start[: len(start) // 2 * 2].decode(encoding, "replace")
    # Possessive, because backtracking into a row of comments would take exponential time.
    prolog = r"\s*(?:<\?.*?\?>\s*|<!--.*?-->\s*|<!DOCTYPE[^\[>]*(?:\[.*?\]\s*)?>\s*)*+"
    match = re.match(rf"{prolog}<(?:[\w.-]+:)?([A-Za-z][\w.-]*)[\s/>]", text, re.DOTALL)
    return match[1] if match else None


def read_tmx(file: BinaryIO, place: str, languages: Languages) -> Iterator[Pair]:
    """Yields the pairs of two languages in a translation memory; see `readers.PairReader`."""
    return _paired_by_language(_tmx_units(file, place), place, languages)


def _tmx_units(file: BinaryIO, place: str) -> Iterator[dict[str, str]]:
    for unit, _ in _elements(file, place, {"tu"}):
        texts: dict[str, str] = {}
        for variant in unit.iter("tuv"):
            segment, code = variant.find("seg"), variant.get("lang")
            if segment is not None and code:
                texts.setdefault(code, _text_of(segment))
        yield texts


def read_wmt_xml(file: BinaryIO, place: str, languages: Languages) -> Iterator[Pair]:
    """Yields the pairs of sources and first references in a test set of WMT; see `readers.PairReader`."""
    return _paired_by_language(_wmt_units(file, place), place, languages)


def _wmt_units(file: BinaryIO, place: str) -> Iterator[dict[str, str]]:
    for document, _ in _elements(file, place, {"doc"}):
        sides: dict[str, dict[str, str]] = {}
        for side in document:
            if side.tag in ("src", "ref") and (code := side.get("lang")):
                sides.setdefault(code, {seg.get("id", ""): _text_of(seg) for seg in side.iter("seg")})
        for number in dict.fromkeys(number for texts in sides.values() for number in texts):
            yield {code: texts[number] for code, texts in sides.items() if number in texts}


def read_xliff(file: BinaryIO, place: str, languages: Languages) -> Iterator[Pair]:
    """Yields the translated units of an XLIFF document, version 1.2 or 2; see `readers.PairReader`."""
    return _paired_by_language(_xliff_units(file, place, languages), place, languages)


def _xliff_units(file: BinaryIO, place: str, languages: Languages) -> Iterator[dict[str, str]]:
    for unit, inherited in _elements(file, place, {"trans-unit", "segment"}):
        source_code = inherited.get("source-language") or inherited.get("srcLang") or languages.source
        target_code = inherited.get("target-language") or inherited.get("trgLang") or languages.target
        source, target = unit.find("source"), unit.find("target")
        is_translated = target is not None and (target.get("state") or unit.get("state")) not in _UNTRANSLATED
        yield _texts({source_code: source, target_code: target if is_translated else None})


def read_qt(file: BinaryIO, place: str, languages: Languages) -> Iterator[Pair]:
    """Yields the finished translations of a catalogue of Qt; see `readers.PairReader`."""
    return _paired_by_language(_qt_units(file, place, languages), place, languages)


def _qt_units(file: BinaryIO, place: str, languages: Languages) -> Iterator[dict[str, str]]:
    for message, inherited in _elements(file, place, {"message"}):
        source_code = inherited.get("sourcelanguage") or "en"
        target_code = inherited.get("language") or languages.target
        target = message.find("translation")
        if target is not None and target.get("type"):  # unfinished, vanished or obsolete
            target = None
        forms = [] if target is None else target.findall("numerusform")
        yield _texts({source_code: message.find("source"), target_code: forms[-1] if forms else target})


def _texts(elements: Mapping[str, Element | None]) -> dict[str, str]:
    """Returns the texts of elements that exist and are not empty."""
    texts = {code: _text_of(element) for code, element in elements.items() if element is not None}
    return {code: text for code, text in texts.items() if text}


def _paired_by_language(units: Iterable[Mapping[str, str]], place: str, languages: Languages) -> Iterator[Pair]:
    """Yields the pairs of units that have texts in both languages.

    Args:
        units: for each unit, its texts by language code.
        place: name of the file, for messages.
        languages: the two languages.

    Raises:
        InputError: no unit has both languages.
    """
    has_pairs, codes = False, collections.Counter[str]()
    for texts in units:
        codes.update(texts.keys())
        source, target = (best_match(language, texts) for language in languages)
        if source is not None and target is not None and source != target:
            has_pairs = True
            yield texts[source], texts[target]
    if not has_pairs:
        present = ", ".join(code for code, _ in codes.most_common(_MAX_CODES)) or "no text"
        raise InputError(
            f"{place}: no translations between {languages.source} and {languages.target}; the file has {present}. "
            "Select two of its languages by --source_language and --target_language"
        )


def read_sgm_lines(file: BinaryIO, place: str) -> Iterator[str]:
    """Yields the segments of one side of a test set of WMT before 2021; see `readers.LineReader`.

    These files are SGML and seldom well-formed XML.
    """
    contents = file.read()
    try:
        text = contents.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = contents.count(b"\n", 0, error.start) + 1
        raise InputError(f"{place}, line {line}: not valid UTF-8 ({error.reason})") from error
    has_segments = False
    for match in _SEGMENT.finditer(text):
        has_segments = True
        yield " ".join(html.unescape(match[1]).split())
    if not has_segments:
        raise InputError(f'{place}: expected segments such as <seg id="1">text</seg>, and there are none')


def _text_of(element: Element) -> str:
    """Returns the text of an element without the content of inline codes."""
    parts = [element.text or ""]
    for child in element:
        tail = child.tail or ""
        if child.tag not in _CODES:
            parts.append(_text_of(child))
        elif child.tag in _SEPARATING and parts[-1][-1:].isalnum() and tail[:1].isalnum():
            parts.append(" ")
        parts.append(tail)
    return "".join(parts)


def _elements(file: BinaryIO, place: str, names: Collection[str]) -> Iterator[_Place]:
    """Yields the outermost elements with one of the names; prefixes of names are removed.

    Raises:
        InputError: the document is not well-formed, declares entities, or is nested too deeply; names `place` and the
            line.
    """
    parser, collected = expat.ParserCreate(), collections.deque[_Place]()
    parser.buffer_text = True
    ancestors: list[Mapping[str, str]] = [{}]
    builders: list[tuple[TreeBuilder, int]] = []  # at most one, and the depth of its element

    def start(tag: str, attributes: dict[str, str]) -> None:
        tag, attributes = _local(tag), {_local(name): value for name, value in attributes.items()}
        ancestors.append({**ancestors[-1], **attributes} if not builders else ancestors[-1])
        if len(ancestors) > _DEEPEST:
            raise InputError(f"{place}, line {parser.CurrentLineNumber}: more than {_DEEPEST} nested elements")
        if not builders and tag in names:
            builders.append((TreeBuilder(), len(ancestors)))
        if builders:
            builders[0][0].start(tag, attributes)

    def end(tag: str) -> None:
        if builders:
            builders[0][0].end(_local(tag))
            if builders[0][1] == len(ancestors):
                collected.append(_Place(builders.pop()[0].close(), ancestors[-1]))
        ancestors.pop()

    def data(text: str) -> None:
        if builders:
            builders[0][0].data(text)

    def refuse_entity(name: str, *_: object) -> None:
        raise InputError(f"{place}, line {parser.CurrentLineNumber}: declares the entity {name!r}, which is refused")

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, data
    parser.EntityDeclHandler = refuse_entity
    # The DTD, which is not read, may declare entities of HTML such as &nbsp;.
    parser.SkippedEntityHandler = lambda name, is_parameter: None if is_parameter else data(html.unescape(f"&{name};"))
    try:
        while part := file.read(_PART_BYTES):
            parser.Parse(part, False)
            while collected:
                yield collected.popleft()
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise InputError(f"{place}, line {error.lineno}: not well-formed XML: {reason}") from error
    except InputError:
        raise
    except (ValueError, LookupError) as error:  # of the encoding that the document declares
        raise InputError(f"{place}, line {parser.CurrentLineNumber}: cannot be decoded: {error}") from error
    yield from collected


def _local(name: str) -> str:
    return name.rpartition(":")[2]
