"""Finds words in any language, and recognises Chinese, Japanese and Korean by language code or by text."""

import functools
import re
import unicodedata
from collections.abc import Iterable

from t2t_keras.text.language_codes import base_language

_KANA = re.compile("[\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f]")
_HANGUL = re.compile("[\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff]")
_HAN = re.compile("[\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_LETTER = re.compile(r"[^\W\d_]")
# A Chinese or Japanese character; these languages do not separate words.
CHARACTER = re.compile(f"[{_KANA.pattern[1:-1]}{_HAN.pattern[1:-1]}]")
_CHARACTER_OR_REST = re.compile(rf"{CHARACTER.pattern}|(?:(?!{CHARACTER.pattern}).)+", re.DOTALL)
_LAST_MARK = 0x1FFFF  # later marks are only variation selectors
_VARIATION_SELECTORS = re.compile("[\u180b-\u180f\ufe00-\ufe0f]")

_CHINESE = ("zh", "cmn", "yue", "wuu", "nan", "hak", "gan", "hsn", "cdo", "cjy", "lzh")
_EAST_ASIAN = {**dict.fromkeys(_CHINESE, "zh"), "ja": "ja", "ko": "ko"}

# About half of Japanese text is kana; Chinese text has kana at most in names.
_SMALLEST_SHARE_OF_KANA = 0.05


def east_asian(language: str) -> str | None:
    """Returns "zh", "ja" or "ko" for a code of these languages, such as "zh_TW" or "cmn-Hans", else None."""
    return _EAST_ASIAN.get(base_language(language))


def words(text: str) -> list[str]:
    """Returns the words of a text in any language, in Unicode normalization form C.

    Combining marks belong to their words, because they are the vowels of Hindi and Thai.
    """
    return _word().findall(unicodedata.normalize("NFC", text))


def words_and_characters(text: str) -> list[str]:
    """Returns the `words` of a text, with each Chinese or Japanese character as a separate word."""
    return [part for word in words(text) for part in _CHARACTER_OR_REST.findall(word)]


def combining_marks() -> str:
    """Returns the combining marks of all scripts, except for the variation selectors after U+1FFFF."""
    return "".join(
        character for character in map(chr, range(_LAST_MARK + 1)) if unicodedata.category(character)[0] == "M"
    )


@functools.cache
def _word() -> re.Pattern[str]:
    """Returns a pattern for letters, digits and the combining marks that follow them, which `\\w` excludes."""
    # Variation selectors select a glyph and do not change the word.
    marks = _VARIATION_SELECTORS.sub("", combining_marks())
    basic_marks = re.escape("".join(mark for mark in marks if mark < "\U00010000"))
    other_marks = re.escape("".join(mark for mark in marks if mark >= "\U00010000"))
    # Two sets, because Python matches a set of characters below U+10000 fast; a lookahead guards the other set.
    return re.compile(rf"\w+(?:(?:[{basic_marks}]|(?=[\U00010000-\U0010ffff])[{other_marks}])+\w*)*")


def language_of(references: Iterable[str], configured: str) -> str:
    """Returns the language of references: "zh", "ja" or "ko" if they are written in it, else the configured one.

    Args:
        references: lines of text.
        configured: language code; a Chinese, Japanese or Korean one is always returned.
    """
    return configured if east_asian(configured) else written_in(references) or configured


def written_in(lines: Iterable[str]) -> str | None:
    """Returns "zh", "ja" or "ko" if most letters of a text belong to the script of this language, else None."""
    text = "\n".join(lines)
    kana, hangul, han = (len(pattern.findall(text)) for pattern in (_KANA, _HANGUL, _HAN))
    if 2 * (kana + hangul + han) <= len(_LETTER.findall(text)):
        return None
    if hangul > kana + han:
        return "ko"
    return "ja" if kana > _SMALLEST_SHARE_OF_KANA * (kana + han) else "zh"
