"""Recognises Chinese, Japanese and Korean, by language code or by text."""

import re
from collections.abc import Iterable

_KANA = re.compile("[\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f]")
_HANGUL = re.compile("[\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff]")
_HAN = re.compile("[\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_LETTER = re.compile(r"[^\W\d_]")
_CHARACTERS = f"[{_KANA.pattern[1:-1]}{_HAN.pattern[1:-1]}]"
_WORD_OR_CHARACTER = re.compile(rf"{_CHARACTERS}|(?:(?!{_CHARACTERS})\w)+")

_CHINESE = ("zh", "zho", "chi", "cmn", "yue", "wuu", "nan", "hak", "gan", "hsn", "cdo", "cjy", "lzh")
_EAST_ASIAN = {**dict.fromkeys(_CHINESE, "zh"), "ja": "ja", "jpn": "ja", "ko": "ko", "kor": "ko"}

# About half of Japanese text is kana; Chinese text has some at most in names.
_SMALLEST_SHARE_OF_KANA = 0.05


def east_asian(language: str) -> str | None:
    """The one of "zh", "ja" and "ko" that a language code means ("zh_TW", "cmn-Hans"), or None for other languages."""
    return _EAST_ASIAN.get(re.split("[-_]", language.lower())[0])


def words_and_characters(text: str) -> list[str]:
    """The words of a text in any language, and each character of Chinese and Japanese, which do not part words."""
    return _WORD_OR_CHARACTER.findall(text)


def written_in(lines: Iterable[str]) -> str | None:
    """The one of "zh", "ja" and "ko" whose script most letters of a text belong to, or None."""
    text = "\n".join(lines)
    kana, hangul, han = (len(pattern.findall(text)) for pattern in (_KANA, _HANGUL, _HAN))
    if 2 * (kana + hangul + han) <= len(_LETTER.findall(text)):
        return None
    if hangul > kana + han:
        return "ko"
    return "ja" if kana > _SMALLEST_SHARE_OF_KANA * (kana + han) else "zh"
