"""Translates the units of a translators' file."""

import itertools
from typing import TYPE_CHECKING

from t2t_keras.inference.marked_text import translate_marked
from t2t_keras.localization.formats import TranslatableFile

from . import program
from .term_report import TermReport

if TYPE_CHECKING:
    from t2t_keras.inference.translator import Translator


def translated(translator: "Translator", file: TranslatableFile, name: str, chunk_size: int) -> tuple[bytes, int]:
    """Returns the file with translations, and the number of outputs that were cut at the length limit.

    Warns of units without a translation, which stay unchanged, and says how many units were translated.

    Args:
        translator: the translator.
        file: the file.
        name: name of the file, for messages.
        chunk_size: texts that are translated together.

    Raises:
        InputError: the model does not offer its attention, or the file's encoding lacks a character.
    """
    report, num_cut = TermReport(name), 0
    results: list[str | None] = []
    remaining = iter(zip(file.documents, file.lines, strict=True))
    while chunk := list(itertools.islice(remaining, chunk_size)):
        texts, translations = translate_marked(translator, [document for document, _ in chunk])
        for (_, line), text, segment_translations in zip(chunk, texts, translations, strict=True):
            exists = all(translation.exists for translation in segment_translations)
            results.append(text if exists else None)
            if not exists:
                program.warn(f"warning: {name}, line {line}: no translation was found; the unit is unchanged")
            for translation in segment_translations:
                report.add(line, translation)
                num_cut += translation.is_cut
    content = file.filled(results)
    if translator.settings.glossary is not None:
        report.print()
    num_translated, num_others = len(file.pending), len(file.units) - len(file.pending)
    others = f"; {num_others:,} had a translation or no text to translate" if num_others else ""
    program.warn(f"{name}: translated {num_translated:,} of {len(file.units):,} units{others}")
    return content, num_cut
