"""Prepares lines of text for translation: removes protected spans and unusual case, and restores both afterwards."""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from t2t_keras.text import sentences as splitting
from t2t_keras.text.letter_case import Case, case_of, in_case, is_unfamiliar, ordinary
from t2t_keras.text.markup.placing import AlignedText
from t2t_keras.text.protection.removal import Removed, Restored, Sentence, remove, repeats, restored, without_spans
from t2t_keras.text.protection.spans import SpanFinder
from t2t_keras.text.repair import UNPRINTABLE
from t2t_keras.text.words import units


class SentenceCase(NamedTuple):
    """The unusual case of a sentence.

    Attributes:
        case: the case; None if it is not unusual or if the model knows it.
        source: the sentence in that case.
    """

    case: Case | None
    source: str


class Prepared(NamedTuple):
    """A line that differs from the text that the model reads.

    Attributes:
        source: the line, without invisible characters.
        text: the text to translate; "" if nothing remains to translate.
        removed: the spans that were removed.
        kept: the spans that remain in the text.
        unknown: the spans with characters that the model does not know.
        cases: the case of each sentence of the text; empty if no case is unusual.
    """

    source: str
    text: str
    removed: tuple[Removed, ...]
    kept: tuple[str, ...]
    unknown: tuple[str, ...]
    cases: tuple[SentenceCase, ...]

    def is_met(self, translation: str) -> bool:
        """Returns whether a translation of the text repeats each span that remains in it exactly once."""
        return repeats(translation, self.kept)

    def finished(self, sentences: Sequence[Sentence], intact: Sequence[str] = ()) -> Restored:
        """Returns the translation of the line.

        Args:
            sentences: the sentences of the text with their translations; none if the text is blank.
            intact: phrases of the translation into which nothing is inserted, and whose spans count as put back.
        """
        spans = [span for each in self.removed for span in each.text.split()]
        invented = [span for span in spans if not any(span in phrase for phrase in intact)]
        removed = [each for each in self.removed if not any(each.text in phrase for phrase in intact)]
        results = []
        cases = itertools.chain(self.cases, itertools.repeat(SentenceCase(None, "")))
        for sentence, (case, source) in zip(sentences, cases, strict=False):
            translation = without_spans(sentence.translation, invented)
            translation = _cased(translation, case, source) if case else translation
            results.append(sentence._replace(translation=translation))
        return restored(removed, results, (*intact, *self.kept))

    def aligned(self, sentences: Sequence[Sentence]) -> AlignedText:
        """Returns the translation of the line with its links to the line; see `finished`."""
        result = self.finished(sentences)
        links = [link for each in _shifted(sentences) for link in each]
        inner_sources, inner_targets = units(self.text), None
        source_units, target_units = units(self.source), units(result.text)
        del links, inner_sources, inner_targets, source_units, target_units
        raise NotImplementedError


def _shifted(sentences: Sequence[Sentence]) -> list[list[tuple[int, int, int, int]]]:
    return [[] for _ in sentences]


def _cased(translation: AlignedText, case: Case, source: str) -> AlignedText:
    """Returns a translation in a case; letters whose capital is several characters move the links after them."""
    text = in_case(translation.text, case, source)
    if len(text) == len(translation.text):
        return AlignedText(text, translation.links)
    places = [0, *itertools.accumulate(len(character.upper()) for character in translation.text)]
    return AlignedText(text, tuple((places[a], places[b], *source_place) for a, b, *source_place in translation.links))
