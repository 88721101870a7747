"""Measures the effect of protecting unknown characters and of --case=fallback: BLEU of a test set in four forms.

    python -m benchmarks.plain_text --model_dir=runs/mine --source=test.en --reference=test.de

The test set is translated unchanged, with an emoji in each line, in capitals, and in title case. The references of the
last two forms have the same case. Emoji are removed from translations before they are scored; "emoji once" is the share
of translations that have the emoji of their source exactly once.
"""

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import t2t_keras
from t2t_keras.data.readers import read_pairs
from t2t_keras.errors import InputError
from t2t_keras.machine.processor import processor
from t2t_keras.tasks.translation_scores import bleu
from t2t_keras.text.language_codes import Languages
from t2t_keras.text.letter_case import Case, in_case
from t2t_keras.text.protection.spans import NOTHING

EMOJI = ("😊", "👍🏽", "🎉", "👩\u200d💻", "❤\ufe0f", "🇩🇪")

_CASES: Mapping[str, Mapping[str, Any]] = {f"--case={case}": {"case": case} for case in ("exact", "fallback")}
# The settings to compare for each form, by their flags.
_SETTINGS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "unchanged": {"": {}},
    "emoji": {"": {}, f"--protect={NOTHING}": {"protect": (NOTHING,)}},
    "capitals": _CASES,
    "title case": _CASES,
}


class Form(NamedTuple):
    """A test set in one form.

    Attributes:
        sources: the sources.
        references: the references.
        emoji: the emoji in each source; empty for a form without emoji.
    """

    sources: list[str]
    references: list[str]
    emoji: list[str]


def forms(sources: Sequence[str], references: Sequence[str], languages: Languages) -> dict[str, Form]:
    """Returns a test set in each form; emoji are at the beginning, in the middle and at the end of lines in turn."""
    emoji = [EMOJI[number % len(EMOJI)] for number in range(len(sources))]
    with_emoji = []
    for number, words in enumerate(map(str.split, sources)):
        place = number % 3 * len(words) // 2
        with_emoji.append(" ".join([*words[:place], emoji[number], *words[place:]]))

    def cased(case: Case) -> Form:
        def spelled(lines: Sequence[str], language: str) -> list[str]:
            # All words of `line.upper()`, which stands for a source, begin with a capital, so short words get one too.
            return [in_case(line, case, line.upper(), language) for line in lines]

        return Form(spelled(sources, languages.source), spelled(references, languages.target), [])

    return {
        "unchanged": Form(list(sources), list(references), []),
        "emoji": Form(with_emoji, list(references), emoji),
        "capitals": cased("capitals"),
        "title case": cased("title"),
    }


def scores(form: Form, translations: Sequence[str], language: str) -> list[str]:
    """Returns BLEU, BLEU of lowercased text, and the share of translations with their emoji once, as text."""
    texts, share = list(translations), ""
    if form.emoji:
        pairs = list(zip(translations, form.emoji, strict=True))
        texts = [" ".join(text.replace(each, " ").split()) for text, each in pairs]
        share = f"{100 * sum(text.count(each) == 1 for text, each in pairs) / len(pairs):.1f} %"
    cased = bleu(texts, form.references, language)
    lowercased = bleu([text.lower() for text in texts], [line.lower() for line in form.references], language)
    return [f"{cased:.1f}", f"{lowercased:.1f}", share]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_dir", required=True, help="a run or an export")
    parser.add_argument("--checkpoint", help="weights of the run")
    parser.add_argument("--source", required=True, help="sources, or a file with both sides")
    parser.add_argument("--reference", help="references")
    parser.add_argument("--engine", default="tensorflow", choices=("tensorflow", "ctranslate2"))
    flags = parser.parse_args()
    settings = t2t_keras.TranslatorSettings(engine=flags.engine)
    translator = t2t_keras.Translator.load(flags.model_dir, flags.checkpoint, settings)
    if translator.tokenizer.characters is None:
        raise InputError(f"--model_dir={flags.model_dir}: it has no record of the characters of its training text")
    base, data = translator.config, translator.data
    languages = Languages(data.source_language, data.target_language)
    sources, references = map(list, zip(*read_pairs(flags.source, flags.reference, languages), strict=True))
    print(f"{flags.model_dir}, {len(sources):,} lines, beam {base.beam_size}, {processor()}\n")
    print("| sources | settings | BLEU | BLEU lowercased | emoji once |\n|---|---|---|---|---|")
    for name, form in forms(sources, references, languages).items():
        for setting, values in _SETTINGS[name].items():
            config = dataclasses.replace(base, **values)
            if config != translator.config:
                settings = dataclasses.replace(settings, decode=config)
                translator = t2t_keras.Translator.load(flags.model_dir, flags.checkpoint, settings)
            translations = [each.text for each in translator.translate(form.sources, scored=False)]
            row = scores(form, translations, languages.target)
            print(f"| {' | '.join([name, f'`{setting}`' if setting else 'defaults', *row])} |", flush=True)


if __name__ == "__main__":
    main()
