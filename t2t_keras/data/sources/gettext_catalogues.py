"""Extracts sentence pairs from gettext catalogues, and from those in a Python wheel.

A catalogue maps the English messages of a program to translations. Markup and keyboard accelerators are removed, and
symbolic message names are skipped. Placeholders such as `%(name)s` stay; both sides must have the same ones.
"""

import collections
import html
import re
import struct
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import polib

from t2t_keras.data.cleaning import Pair
from t2t_keras.data.sources.corpora_files import damage_named
from t2t_keras.errors import InputError, explained
from t2t_keras.text.language_codes import Languages, best_match
from t2t_keras.text.plural_forms import PluralRule, plural_rule

_BINARY_MAGIC = (b"\xde\x12\x04\x95", b"\x95\x04\x12\xde")  # of .mo files in either byte order
_DEFAULT_COMMENT = re.compile(r'Default:\s*"(.*)"', re.DOTALL)
# Symbolic names of messages, such as label_edit, heading.content-rules and msgSaved.
_SYMBOLIC = re.compile(r"[a-z0-9]+(?:[_.:/-][A-Za-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+")
_PLACEHOLDER = re.compile(r"%\(\w+\)\w|%[-+#0-9.]*[a-zA-Z]\b|\$?\{[^{}]*\}|\$\w+")
_TAG = re.compile(
    r"</?(?:a|abbr|b|big|blockquote|br|button|cite|code|dd|div|dl|dt|em|form|h[1-6]|hr|i|img|input|kbd|label|li|ol|p|pre"
    r"|q|samp|small|span|strong|sub|sup|table|tbody|td|th|thead|tr|tt|u|ul|var)(?:\s[^<>]*)?/?>",
    re.IGNORECASE,
)
_PARAGRAPHS = re.compile(r"\n\s*\n")
_TRAILING_ACCELERATOR = re.compile(r"\s*\([_&]\w\)")
_ACCELERATOR = re.compile(r"[_&](?=\w)")
_LETTERS = re.compile(r"[^\W\d_]{2}")
_TWO_FORMS = PluralRule(2, lambda number: int(number != 1))  # for catalogues without a valid rule


def read_wheel(path: str | Path, language: str) -> list[Pair]:
    """Returns the distinct pairs of English and `language` in all catalogues of a wheel, in a fixed order.

    If a package has only a regional catalogue ("de_DE") for `language` ("de"), that one is read.

    Raises:
        InputError: the wheel cannot be read, or it or a catalogue in it is damaged.
    """
    pairs: dict[Pair, None] = {}
    with damage_named(path), explained(f"{path}: cannot be read"), zipfile.ZipFile(path) as wheel:
        for name in _catalogue_names(wheel.namelist(), language):
            pairs.update(dict.fromkeys(_pairs(_parsed(wheel.read(name), f"{path}/{name}"))))
    return list(pairs)


def read_catalogue(file: BinaryIO, place: str, languages: Languages) -> Iterator[Pair]:
    """Yields the usable pairs of a .po or .mo file, in the order of the file; see `readers.PairReader`.

    Fuzzy and obsolete entries, symbolic message names without English text, and text whose sides differ in placeholders
    or markup are left out. The messages are taken to be in the source language, unless the catalogue's translations
    are.

    Raises:
        InputError: the file is damaged, or its translations are in neither of the languages.
    """
    catalogue = _parsed(file.read(), place)
    code = catalogue.metadata.get("Language", "").strip()
    is_source, is_target = (code and best_match(language, [code]) for language in languages)
    if code and not is_source and not is_target:
        raise InputError(
            f"{place}: its translations are in {code!r}, which is neither --source_language={languages.source} nor "
            f"--target_language={languages.target}"
        )
    for source, target in _pairs(catalogue):
        yield (target, source) if is_source and not is_target else (source, target)


def _parsed(contents: bytes, place: str) -> polib.POFile | polib.MOFile:
    """Parses a catalogue; raises an InputError, which names `place`, if it is damaged."""
    read = polib.mofile if contents[:4] in _BINARY_MAGIC else polib.pofile
    with tempfile.NamedTemporaryFile() as copy:  # polib splits the lines of a string wrongly
        copy.write(contents)
        copy.flush()
        try:
            return read(copy.name)
        except (OSError, ValueError, struct.error) as error:  # ValueError includes UnicodeDecodeError
            reason = " ".join(str(error).split()).replace(f" {copy.name}", "")
            raise InputError(f"{place}: not a readable catalogue: {reason}") from error


def _pairs(catalogue: polib.POFile | polib.MOFile) -> Iterator[Pair]:
    """Yields the usable pairs of a catalogue; see `read_catalogue`."""
    rule = plural_rule(catalogue.metadata.get("Plural-Forms", "")) or _TWO_FORMS
    for entry in catalogue:
        if entry.obsolete or "fuzzy" in entry.flags:
            continue
        source = _english(entry)
        if source is None:
            continue
        yield from _plain_pairs(source, entry.msgstr or entry.msgstr_plural.get(rule.form(1), ""))
        if entry.msgid_plural:
            yield from _plain_pairs(entry.msgid_plural, entry.msgstr_plural.get(rule.form(2), ""))


def _catalogue_names(names: Iterable[str], language: str) -> list[str]:
    """Returns the catalogues of a language among file names; prefers .po to .mo files, which have no comments."""
    language_locale = language.replace("-", "_").lower()
    catalogues: dict[str, dict[str, str]] = collections.defaultdict(dict)
    for name in sorted(names):  # .po is sorted after .mo and replaces it
        path = PurePosixPath(name)
        if path.suffix in (".po", ".mo"):
            for part in {*path.parent.parts, path.stem}:
                locale = part.replace("-", "_").lower()
                if re.fullmatch(rf"{re.escape(language_locale)}(_[a-z]+)?", locale):
                    catalogues[locale][str(path.with_suffix(""))] = name
    for locale in (language_locale, f"{language_locale}_{language_locale}", *sorted(catalogues)):
        if locale in catalogues:
            return sorted(catalogues[locale].values())
    return []


def _english(entry: polib.POEntry) -> str | None:
    """Returns the English text of an entry; None if only the name of the message is known."""
    if default := _DEFAULT_COMMENT.search(entry.comment or ""):
        return default[1].replace('\\"', '"')
    return None if _SYMBOLIC.fullmatch(entry.msgid) else entry.msgid


def _plain_pairs(source: str, target: str) -> Iterator[Pair]:
    """Yields the pairs of paragraphs of a message as plain text, except those whose sides do not match."""
    source_parts, target_parts = (_PARAGRAPHS.split(text.strip()) for text in (source, target))
    if len(source_parts) != len(target_parts):
        return
    for parts in zip(source_parts, target_parts, strict=True):
        if _signature(parts[0]) != _signature(parts[1]):
            continue
        plain = (" ".join(html.unescape(_TAG.sub("", part)).split()) for part in parts)
        pair = _remove_accelerators(*plain)
        if all(map(_LETTERS.search, pair)):
            yield pair


def _signature(text: str) -> tuple[list[str], int]:
    """Returns the placeholders outside of tags and the number of tags, which must be the same on both sides."""
    plain, tags = _TAG.subn(" ", text)
    return sorted(set(_PLACEHOLDER.findall(plain))), tags


def _remove_accelerators(source: str, target: str) -> Pair:
    """Removes the "_" or "&" that marks the key of a menu entry, as in "_File" or "Date&i"."""
    source, target = (_TRAILING_ACCELERATOR.sub("", text) for text in (source, target))
    source_word, target_word = _marked_word(source), _marked_word(target)
    # Within a word, "_" or "&" is a mark only if the other side has one in a different word. Otherwise, the word is an
    # identifier.
    is_marked = source_word is not None and target_word is not None and source_word != target_word
    return (_remove_mark(source, source_word, is_marked), _remove_mark(target, target_word, is_marked))


def _marked_word(text: str) -> str | None:
    """Returns the word that may have an accelerator mark; None unless there is exactly one mark."""
    words = [word for word in text.split() if _ACCELERATOR.search(word) and not _PLACEHOLDER.search(word)]
    return words[0] if len(words) == 1 and len(_ACCELERATOR.findall(words[0])) == 1 else None


def _remove_mark(text: str, word: str | None, in_words: bool) -> str:
    if word is None or not (in_words or _ACCELERATOR.match(word)):
        return text
    return text.replace(word, _ACCELERATOR.sub("", word), 1)
