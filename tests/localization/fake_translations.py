"""Replaces a model with rules: translations of the segments of a file with exact alignments."""

from collections.abc import Callable

from t2t_keras.localization.formats import Options, TranslatableFile
from t2t_keras.localization.unit_text import UnitText
from t2t_keras.localization.units import Style, Unit, text_part
from t2t_keras.text.markup.placing import AlignedText
from t2t_keras.text.words import units

Translate = Callable[[str], AlignedText]


unchanged = AlignedText.unchanged


def upper(text: str) -> AlignedText:
    return AlignedText(
        "".join(each.upper() if len(each.upper()) == 1 else each for each in text), unchanged(text).links
    )


def reverse_words(text: str) -> AlignedText:
    """Reverses the order of the words."""
    result, links = "", []
    for start, end in reversed([span for span in units(text) if text[span[0]].isalnum()]):
        result += " " if result else ""
        links.append((len(result), len(result) + end - start, start, end))
        result += text[start:end]
    return AlignedText(result, tuple(links))


def double_words(text: str) -> AlignedText:
    """Writes each word twice."""
    result, links, place = "", [], 0
    for start, end in units(text):
        word = text[start:end]
        word = f"{word} {word}" if word.isalpha() else word
        result += text[place:start]
        links.append((len(result), len(result) + len(word), start, end))
        result, place = result + word, end
    return AlignedText(result, tuple(links))


def translate_file(
    content: bytes | str,
    suffix: str,
    translate: Translate = upper,
    options: Options | None = None,
    *,
    all_units: bool = False,
) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    file = TranslatableFile(content, f"in{suffix}", suffix, options, all_units=all_units)
    return file.filled([each.filled([translate(s.text) for s in each.segments]) for each in file.documents])


def translate_text(text: str, style: Style | None = None, translate: Translate = upper, language: str = "de") -> str:
    unit = UnitText(Unit(text_part(text), 0, lambda _: [], style=style or Style()), language)
    return unit.filled([each.filled([translate(s.text) for s in each.segments]) for each in unit.documents])
